"""Finds places for a job's ranks: all of them, or those that were lost, on what is free now."""

from collections.abc import Mapping, Set

from goodput_operator.api.spec import Role
from goodput_operator.domain import volumes
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodSetAssignment
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.gang import NoPlace, Placed, RankGroup, plan_gang
from goodput_operator.domain.placement.ledger import free_resources
from goodput_operator.domain.resources import pod_requests


def find_place(context: Context) -> Placed | NoPlace:
    """A placement for the gang within what Kueue has assigned."""
    counts = {role.name: role.replicas for role in context.spec.roles}
    outcome = find_room(context, counts)
    return volumes.check_spread(context, outcome) if isinstance(outcome, Placed) else outcome


def find_room(
    context: Context,
    counts: Mapping[str, int],
    leaving: Set[str] = frozenset(),
    avoided: Set[str] = frozenset(),
) -> Placed | NoPlace:
    """Room for so many ranks of each role, all or none, within what Kueue has assigned.

    The pods ``leaving``, by UID, count as gone, and the nodes ``avoided`` are left out, with those
    that are excluded for this job. Claims that one node alone can mount are not looked at.
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
    return plan_gang(groups, context.snapshot.nodes, free, {*context.excluded_nodes, *avoided})


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
