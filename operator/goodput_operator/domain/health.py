"""What decisions ask about the health of the nodes that a live attempt is on."""

from collections.abc import Mapping
from dataclasses import dataclass

from goodput_operator import constants as c
from goodput_operator.api.spec import Role
from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.api.times import parse_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import NodeView, PodView
from goodput_operator.domain.placement.constraints import UNSCHEDULABLE, NodeConstraints

EVICTED_BY_API = "EvictionByEvictionAPI"
"""Reason of ``DisruptionTarget`` on a pod that the Eviction API evicts, as ``kubectl drain``."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The nodes that the ranks of a live attempt have to leave, each with why."""

    unhealthy: Mapping[str, str]
    cordoned: Mapping[str, str]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(sorted({*self.unhealthy, *self.cordoned}))

    @property
    def reason(self) -> str:
        """The graver of the reasons that there are."""
        return c.Reason.NODE_UNHEALTHY if self.unhealthy else c.Reason.NODE_CORDONED

    @property
    def told(self) -> str:
        """One phrase on the first few of them."""
        every = [*self.unhealthy.values(), *self.cordoned.values()]
        more = f" and {len(every) - 3} more nodes" if len(every) > 3 else ""
        return "; ".join(every[:3]) + more


def checkpoint_request(status: TrainingJobStatus) -> int | None:
    """The checkpoint that the workers are asked for: a number that grows with each new request.

    It is the whole POSIX seconds of when it was asked for; None when none is wanted.
    """
    growth = status.growth
    asked = [
        status.move.since if status.move is not None else None,
        growth.asked_at if growth is not None else None,
    ]
    return max((int(parse_time(each)) for each in asked if each is not None), default=None)


def drained(context: Context, pod: PodView) -> bool:
    """Whether the pod was taken in good order from a node that is to be freed.

    That is the Eviction API's doing, or a plain deletion (``kubectl drain --disable-eviction``). It
    counts as a migration, not against the infrastructure.
    """
    evicted = pod.disruption == EVICTED_BY_API or (pod.deleting and pod.disruption is None)
    return evicted and pod.node is not None and is_freed(context, pod.role, pod.node)


def is_freed(context: Context, role_name: str, name: str) -> bool:
    """Whether a node that is alive takes no rank of the role any more.

    It is cordoned, tainted, about to be deleted, or unhealthy.
    """
    node = context.snapshot.nodes.get(name)
    role = next((each for each in context.spec.roles if each.name == role_name), None)
    if node is None or node.lost or role is None:
        return False
    return _constraints(context, role).mismatch(node) is not None


def find_leaving(context: Context) -> Leaving:
    """The nodes of the live attempt that are cordoned or unhealthy, while ranks still work there.

    A cordon is nothing to a role that tolerates it.
    """
    unhealthy: dict[str, str] = {}
    cordoned: dict[str, str] = {}
    placement = context.placement
    suspects = {name for name in placement.nodes if _is_suspect(context, name)} if placement else ()
    if not suspects:
        return Leaving({}, {})
    constraints = {role.name: _constraints(context, role) for role in context.spec.roles}
    for rank, name in context.ranks.items():
        pod = context.live_pods.get(rank)
        if name not in suspects or (pod is not None and pod.phase == "Succeeded"):
            continue
        node, mine = context.snapshot.nodes[name], constraints.get(rank[0])
        if node.bad is not None:
            unhealthy[name] = describe_bad(node)
        elif mine is not None and mine.mismatch(node) == UNSCHEDULABLE:
            cordoned[name] = f"node {name} is cordoned"
    return Leaving(unhealthy, cordoned)


def describe_bad(node: NodeView) -> str:
    """One phrase on the condition that makes a node unfit."""
    if node.bad is None:
        return f"node {node.name} is healthy"
    said = f" ({node.bad.message})" if node.bad.message else ""
    return f"node {node.name} has the condition {node.bad.type}{said}"


def _is_suspect(context: Context, name: str) -> bool:
    node = context.snapshot.nodes.get(name)
    return node is not None and (node.unschedulable or node.bad is not None)


def _constraints(context: Context, role: Role) -> NodeConstraints:
    """The role's constraints, as they were when it was placed.

    Raises nothing: what is placed was readable, but the spec may have changed since.
    """
    workload = context.workload
    assigned = workload.assignments if workload else ()
    assignment = next((each for each in assigned if each.name == role.name), None)
    try:
        return NodeConstraints.of(role.template, assignment)
    except ValueError:
        return NodeConstraints()
