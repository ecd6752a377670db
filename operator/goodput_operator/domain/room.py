"""Where a job's ranks could go now: all of them, or those that were lost."""

from collections.abc import Mapping, Set

from goodput_operator.api.spec import Role
from goodput_operator.domain import size, trust, volumes
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodSetAssignment
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.gang import AVOIDED, NoPlace, Placed, RankGroup, plan_gang
from goodput_operator.domain.placement.ledger import free_resources
from goodput_operator.domain.placement.topology import plan_in_topology
from goodput_operator.domain.resources import pod_requests


def find_place(
    context: Context, use_avoided: bool = True, counts: Mapping[str, int] | None = None
) -> Placed | NoPlace:
    """A placement for the gang within what Kueue has assigned, on what is free now.

    For all ranks that there is quota for, unless ``counts`` says how many of each role. Without
    ``use_avoided``, nodes that keep failing jobs are left out.
    """
    shunned: Set[str] = frozenset()
    if not use_avoided:
        shunned = {name for name, level in trust.levels(context).items() if level >= AVOIDED}
    counts = size.granted(context.spec, context.workload) if counts is None else counts
    outcome = find_room(context, counts, shunned=shunned)
    return volumes.check_spread(context, outcome) if isinstance(outcome, Placed) else outcome


def find_room(
    context: Context,
    counts: Mapping[str, int],
    *,
    leaving: Set[str] = frozenset(),
    shunned: Set[str] = frozenset(),
) -> Placed | NoPlace:
    """Room for so many ranks of each role, all or none, within what Kueue has assigned.

    The pods ``leaving``, by UID, count as gone, and the nodes ``shunned`` are left out, with those
    that are excluded for this job. Nodes that have failed jobs of late come last. Claims that one
    node alone can mount are not looked at. Under topology-aware scheduling there is room for the
    whole gang alone, where Kueue has put it: another place for lost ranks is Kueue's to give.
    """
    workload = context.workload
    assigned: Mapping[str, PodSetAssignment] = (
        {each.name: each for each in workload.assignments} if workload else {}
    )
    for each in assigned.values():
        if each.conflict is not None:
            return NoPlace(f"admission of role {each.name} contradicts itself: {each.conflict}", 0)
    groups = tuple(
        volumes.bind(context, rank_group(role, assigned.get(role.name), counts[role.name]))
        for role in context.spec.roles
        if counts.get(role.name)
    )
    free = free_resources(context.snapshot, context.job.key, leaving)
    left_out = {*context.excluded_nodes, *shunned}
    nodes, levels = context.snapshot.nodes, trust.levels(context)
    topology = {each.name: each.topology for each in assigned.values() if each.topology}
    if not topology:
        return plan_gang(groups, nodes, free, left_out, levels)
    if workload and workload.unhealthy_nodes:
        names = ", ".join(workload.unhealthy_nodes)
        return NoPlace(f"Kueue is to replace {names} in its topology assignment", 0)
    return plan_in_topology(groups, topology, nodes, free, left_out, levels)


def rank_group(
    role: Role, assignment: PodSetAssignment | None, count: int | None = None
) -> RankGroup:
    """Ranks of the role as the planner takes them; all of them when no count is given.

    Raises ValueError when its template is malformed.
    """
    return RankGroup(
        role.name,
        role.replicas if count is None else count,
        pod_requests(role.template.get("spec") or {}),
        NodeConstraints.of(role.template, assignment),
    )
