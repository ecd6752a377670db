"""What happened to a gang, and what it counts against.

The order matters. A node that is lost takes its ranks with it, and their peers crash within
moments because a collective broke: so infrastructure is looked for first, over the whole gang, and
a crash is only what no lost node or foreign hand explains.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from goodput_operator import constants as c
from goodput_operator.api.status import Cause
from goodput_operator.api.times import format_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import NodeView, PodView

_KUBELET_REASONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting"}
)
"""Pod ``status.reason`` set by a kubelet or controller that ended or refused the pod."""
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


def _lost_nodes(context: Context) -> Failure | None:
    nodes = context.snapshot.nodes
    places = dict(_places(context))
    needed = dict.fromkeys(node for rank, node in places.items() if rank not in context.succeeded)
    lost = tuple(name for name in needed if (node := nodes.get(name)) is None or node.lost)
    if not lost:
        return None
    ranks = [
        _name(rank)
        for rank, node in places.items()
        if node in lost and rank not in context.succeeded
    ]
    told = "; ".join(describe_loss(name, nodes.get(name)) for name in lost[:3])
    more = f" and {len(lost) - 3} more nodes" if len(lost) > 3 else ""
    return Failure(
        Cause.INFRASTRUCTURE,
        c.EventReason.NODE_LOST,
        f"{told}{more}: lost {_list(ranks)}",
        lost_nodes=lost,
    )


def _places(context: Context) -> Iterator[tuple[tuple[str, int], str]]:
    """Each rank with its node: where its pod is, once it is bound.

    That is where it was placed, unless somebody's webhook has rewritten its node affinity.
    """
    for rank, node in context.ranks.items():
        pod = context.live_pods.get(rank)
        yield rank, (pod.node if pod is not None else None) or node


def _lost_pods(context: Context) -> Failure | None:
    for rank, pod in context.live_pods.items():
        reason = _disrupted(pod)
        if reason:
            return Failure(
                Cause.INFRASTRUCTURE,
                c.EventReason.POD_LOST,
                f"rank {_name(rank)} (pod {pod.name} on node {pod.node}) was lost: {reason}",
                refused_by=pod.node if _refused(pod) else None,
            )
    placement = context.placement
    if placement is not None and placement.created_at is not None:
        for rank, node in context.ranks.items():
            if rank not in context.live_pods and rank not in context.succeeded:
                return Failure(
                    Cause.INFRASTRUCTURE,
                    c.EventReason.POD_LOST,
                    f"rank {_name(rank)} on node {node} was lost: somebody deleted its pod",
                )
    return None


def _disrupted(pod: PodView) -> str | None:
    """Why a pod was ended by something other than its own containers; None if it was not."""
    if pod.phase == "Succeeded":
        return None
    if pod.disruption is not None:
        return f"disrupted ({pod.disruption})"
    if pod.deleting:
        return "somebody deleted its pod"
    if pod.phase != "Failed":
        return None
    if pod.status_reason in _KUBELET_REASONS or _refused(pod):
        return f"{pod.status_reason}: {pod.status_message}".rstrip(": ")
    if not any(each.exit_code for each in pod.exits):
        return "its containers' end was not seen"
    return None


def _refused(pod: PodView) -> bool:
    """Whether the node's kubelet did not take the pod: no container ever ran, and it says why."""
    if pod.phase != "Failed" or not pod.status_reason or pod.status_reason in _KUBELET_REASONS:
        return False
    return pod.status_reason.startswith(_REFUSALS) or not pod.exits


def _crash(context: Context) -> Failure | None:
    # One container of several may have failed while the others keep the pod Running: the rank is
    # lost all the same.
    crashed = [
        (rank, pod)
        for rank, pod in context.live_pods.items()
        if pod.phase == "Failed"
        or (pod.phase != "Succeeded" and any(each.exit_code for each in pod.exits))
    ]
    if not crashed:
        return None
    # The first to exit is the likeliest to say why; its peers mostly report its disappearance.
    rank, pod = min(crashed, key=lambda item: (_exit_time(item[1]), item[0]))
    told = "; ".join(_exits(pod))
    also = f"; {len(crashed) - 1} more ranks failed too" if len(crashed) > 1 else ""
    return Failure(
        Cause.CRASH,
        c.EventReason.RANK_CRASHED,
        f"rank {_name(rank)} (pod {pod.name} on node {pod.node}) failed: {told}{also}",
    )


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


def _name(rank: tuple[str, int]) -> str:
    return f"{rank[0]}-{rank[1]}"


def _list(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"rank {shown}" if len(names) == 1 else f"ranks {shown}{more}"
