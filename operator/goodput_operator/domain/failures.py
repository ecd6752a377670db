"""What happened to a gang, and what it counts against.

The order matters. A node that is lost takes its ranks with it, and their peers crash within
moments because a collective broke: so infrastructure is looked for first, over the whole gang, and
a crash is only what no lost node or foreign hand explains.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, FiredRule
from goodput_operator.api.times import format_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.health import drained, is_freed
from goodput_operator.domain.marks import first_match
from goodput_operator.domain.model import NodeView, PodView
from goodput_operator.domain.placement.ledger import is_created

PREEMPTED_BY_SCHEDULER = "PreemptionByScheduler"
_KUBELET_REASONS = frozenset({"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting"})
"""Pod ``status.reason`` set by a kubelet or controller that ended or refused the pod."""
_OWN_LIMITS = frozenset({"Evicted", "DeadlineExceeded"})
"""Pod ``status.reason`` of a kubelet that enforces what the pod's own template says."""
SAME_MOMENT_SECONDS = 1.0
"""Kubelets tell whole seconds: ranks that failed within one may have failed in any order."""
_REFUSALS = ("OutOf", "Unexpected", "NodeAffinity", "Topology", "PodOS")
"""A kubelet did not take the pod: ``OutOfcpu``, ``UnexpectedAdmissionError``, …"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the live attempt cannot go on."""

    cause: Cause
    event: str
    """Reason of the Event that tells it."""
    message: str
    """Names the rank, its node and what was seen."""
    lost_nodes: tuple[str, ...] = ()
    refused_by: str | None = None
    """The node whose kubelet refused the pod: it would do so again."""
    rule: FiredRule | None = None
    """The user's rule that it matched."""
    suspects: tuple[str, ...] = ()
    """The nodes that it is put down to for now, if it can be told."""
    happened_at: float | None = None
    """When it happened, as far as anybody knows; None: just now."""


def find_failure(context: Context) -> Failure | None:
    """The failure that ends the live attempt, or None while it can go on."""
    return _lost_nodes(context) or _lost_pods(context) or _crash(context)


def describe_loss(name: str, node: NodeView | None) -> str:
    """One phrase on how a node was lost."""
    if node is None:
        return f"node {name} was deleted"
    for taint in node.taints:
        if taint.key in (c.TAINT_OUT_OF_SERVICE, c.TAINT_UNREACHABLE):
            return f"node {name} has the taint {taint.key}"
    if node.ready and node.silence is not None:
        return f"node {name} has not renewed its Lease since {format_time(node.silence.since)}"
    return f"node {name} is not ready" + (f" ({node.ready_message})" if node.ready_message else "")


def lost_ranks(context: Context) -> tuple[tuple[str, int], ...]:
    """Every rank of the live attempt that does not go on, whatever the reason, in rank order."""
    nodes, placement = context.snapshot.nodes, context.placement
    created = placement is not None and is_created(placement)
    lost = []
    for rank, name in _places(context):
        if rank in context.succeeded:
            continue
        pod, node = context.live_pods.get(rank), nodes.get(name)
        gone = created if pod is None else _disrupted(pod) is not None or _crashed(pod)
        if gone or node is None or node.lost:
            lost.append(rank)
    return tuple(lost)


def _crashed(pod: PodView) -> bool:
    """One container of several may have failed while the others keep the pod Running: the rank is
    lost all the same."""
    if pod.phase == "Succeeded":
        return False
    return pod.phase == "Failed" or any(each.exit_code for each in pod.exits)


def _lost_nodes(context: Context) -> Failure | None:
    nodes = context.snapshot.nodes
    places = dict(_places(context))
    needed = dict.fromkeys(node for rank, node in places.items() if rank not in context.succeeded)
    lost = tuple(name for name in needed if (node := nodes.get(name)) is None or node.lost)
    if not lost:
        return None
    ranks = [
        rank_name(rank)
        for rank, node in places.items()
        if node in lost and rank not in context.succeeded
    ]
    told = "; ".join(describe_loss(name, nodes.get(name)) for name in lost[:3])
    more = f" and {len(lost) - 3} more nodes" if len(lost) > 3 else ""
    return Failure(
        Cause.INFRASTRUCTURE,
        c.EventReason.NODE_LOST,
        f"{told}{more}: lost {name_list(ranks)}",
        lost_nodes=lost,
        happened_at=_lost_since(context, lost),
    )


def _places(context: Context) -> Iterator[tuple[tuple[str, int], str]]:
    """Each rank with its node: where its pod is, once it is bound.

    That is where it was placed, unless somebody's webhook has rewritten its node affinity.
    """
    for rank, node in context.ranks.items():
        pod = context.live_pods.get(rank)
        yield rank, (pod.node if pod is not None else None) or node


def _lost_since(context: Context, lost: tuple[str, ...]) -> float | None:
    """When the first of these nodes was last heard of, or was found missing."""
    nodes = [context.snapshot.nodes.get(name) for name in lost]
    times = [
        min(filter(None, (node.lost_since, node.heartbeat_at)), default=None)
        for node in nodes
        if node is not None
    ]
    return min(filter(None, times), default=None)


def _lost_pods(context: Context) -> Failure | None:
    """Ranks that something other than their own containers has ended."""
    for pod in context.live_pods.values():
        lost = _disrupted(pod)
        if lost is None:
            continue
        cause, told = lost
        leaves = drained(context, pod)
        message = f"{_where(pod)} was lost: {told}"
        fired = first_match(context.spec.fault_tolerance.rules, (pod,))
        return Failure(
            Cause.MIGRATION if leaves else cause,
            c.EventReason.MIGRATED if leaves else c.EventReason.POD_LOST,
            message + _told_rule(fired[0] if fired else None),
            refused_by=pod.node if _refused(pod) else None,
            rule=fired[0] if fired else None,
        )
    placement = context.placement
    if placement is not None and is_created(placement):
        for rank, node in context.ranks.items():
            if rank not in context.live_pods and rank not in context.succeeded:
                leaves = is_freed(context, rank[0], node)
                return Failure(
                    Cause.MIGRATION if leaves else Cause.INFRASTRUCTURE,
                    c.EventReason.MIGRATED if leaves else c.EventReason.POD_LOST,
                    f"rank {rank_name(rank)} on node {node} was lost: somebody deleted its pod",
                )
    return None


def _disrupted(pod: PodView) -> tuple[Cause, str] | None:
    """What ended a pod if it was not its own containers, and how; None if it was these."""
    if pod.phase == "Succeeded":
        return None
    if pod.disruption is not None:
        cause = Cause.INFRASTRUCTURE
        if pod.disruption == PREEMPTED_BY_SCHEDULER or pod.status_reason == "Preempting":
            cause = Cause.PREEMPTION
        return cause, f"disrupted ({pod.disruption})"
    if pod.deleting:
        return Cause.INFRASTRUCTURE, "somebody deleted its pod"
    if pod.phase != "Failed" or _beyond_its_limits(pod):
        return None
    if pod.status_reason in _KUBELET_REASONS or _refused(pod):
        return Cause.INFRASTRUCTURE, f"{pod.status_reason}: {pod.status_message}".rstrip(": ")
    if not any(each.exit_code for each in pod.exits):
        return Cause.INFRASTRUCTURE, "its containers' end was not seen"
    return None


def _beyond_its_limits(pod: PodView) -> bool:
    """Whether a kubelet has ended the pod for what its own template says.

    It used more ephemeral storage than its limit, or has a deadline of its own. An eviction that
    the node's distress has caused bears the condition DisruptionTarget; these don't.
    """
    return pod.status_reason in _OWN_LIMITS and pod.disruption is None


def _refused(pod: PodView) -> bool:
    """Whether the node's kubelet did not take the pod: no container ever ran, and it says why."""
    if pod.phase != "Failed" or not pod.status_reason:
        return False
    if pod.status_reason in _KUBELET_REASONS | _OWN_LIMITS:
        return False
    return pod.status_reason.startswith(_REFUSALS) or not pod.exits


def _crash(context: Context) -> Failure | None:
    crashed = [(rank, pod) for rank, pod in context.live_pods.items() if _crashed(pod)]
    if not crashed:
        return None
    # The first to exit is the likeliest to say why; its peers mostly report its disappearance.
    crashed.sort(key=lambda item: (_exit_time(item[1]), item[0]))
    began = _exit_time(crashed[0][1])
    first = [pod for _, pod in crashed if _exit_time(pod) <= began + SAME_MOMENT_SECONDS]
    fired = first_match(context.spec.fault_tolerance.rules, first)
    rule, pod = fired if fired else (None, first[0])
    also = f"; {len(crashed) - 1} more ranks failed too" if len(crashed) > 1 else ""
    return Failure(
        Cause.CRASH,
        c.EventReason.RANK_CRASHED,
        f"{_where(pod)} failed: {_why(pod)}{also}{_told_rule(rule)}",
        rule=rule,
        happened_at=began if began < float("inf") else None,
    )


def _where(pod: PodView) -> str:
    return f"rank {rank_name((pod.role, pod.rank))} (pod {pod.name} on node {pod.node})"


def _why(pod: PodView) -> str:
    if _beyond_its_limits(pod):
        return f"{pod.status_reason}: {pod.status_message}".rstrip(": ")
    return "; ".join(_exits(pod))


def _told_rule(rule: FiredRule | None) -> str:
    return f" (spec.faultTolerance.rules[{rule.index}]: {rule.action})" if rule else ""


def _exits(pod: PodView) -> Iterator[str]:
    for each in pod.exits:
        if each.exit_code:
            reason = f" ({each.reason})" if each.reason and each.reason != "Error" else ""
            said = f": {_last_line(each.message)}" if each.message.strip() else ""
            yield f"container {each.container} exited with code {each.exit_code}{reason}{said}"


def _last_line(text: str, limit: int = 200) -> str:
    return text.strip().splitlines()[-1].strip()[:limit]


def _exit_time(pod: PodView) -> float:
    times = [each.finished_at for each in pod.exits if each.exit_code and each.finished_at]
    return min(times) if times else float("inf")


def rank_name(rank: tuple[str, int]) -> str:
    return f"{rank[0]}-{rank[1]}"


def name_list(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"rank {shown}" if len(names) == 1 else f"ranks {shown}{more}"
