"""Nodes that fall silent together: is it they that are lost, or is the control plane sick?

A node is *silent* when nobody hears from it: its Lease is late or stale, or the controller manager
has marked it as Unknown or unreachable. A node whose kubelet says that it is not ready speaks, and
a node that is deleted was deleted by somebody: neither is silent.

The rule, in numbers. Of the nodes that fell silent lately, take the most that did so within one
window of ``silence_window_seconds``. If they are at least ``LEAST`` nodes,
and at least ``SHARE`` of those that were well before, then nobody's nodes are taken for lost on
the ground of their silence, until ``silence_hold_seconds`` after the first of them fell silent. A
node that is heard again counts for another window, so that the last ones to come back are not
taken for lost because the others were faster.

That is the shape of the node controller's own rule, which stops evicting when more than 2 nodes
and 55 % of a zone are not ready.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from goodput_operator.domain.model import NodeView, Silence
from goodput_operator.domain.policy import Policy

LEAST = 3
"""Fewer nodes than this may always be lost together: a small cluster is not held still."""
SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ClusterSilence:
    """Most of the cluster has fallen silent at once."""

    silent: int
    """Nodes that fell silent together."""
    nodes: int
    """Nodes that were well before."""
    until: float
    """When it is over at the latest (POSIX seconds)."""


def next_silence(before: NodeView | None, node: NodeView, since: float) -> Silence | None:
    """The silence of a node as it is now seen, given how it was last seen.

    ``since`` is when it fell silent, or when it was heard again, whichever is the case.
    """
    known = before.silence if before is not None else None
    lasts = known is not None and known.until is None
    if not node.unheard and known is not None and lasts:
        # One that was merely late is as if nothing had been.
        return Silence(known.since, until=since) if before is not None and before.lost else None
    if not node.unheard:
        return known
    if known is not None and lasts:
        return Silence(min(known.since, since))
    return Silence(since)


def find_silence(nodes: Iterable[NodeView], now: float, policy: Policy) -> ClusterSilence | None:
    """Whether most of the cluster has fallen silent at once, and for how long that counts."""
    silences, well, lasting = [], 0, False
    for node in nodes:
        silence = node.silence
        if silence is not None and _counts(silence, now, policy):
            silences.append(silence.since)
            lasting = lasting or silence.until is None
        elif not node.lost:
            well += 1
    total = well + len(silences)
    together, first = _most_within(sorted(silences), policy.silence_window_seconds)
    until = first + policy.silence_hold_seconds
    if not lasting or together < LEAST or together < SHARE * total or now >= until:
        return None
    return ClusterSilence(together, total, until)


def _counts(silence: Silence, now: float, policy: Policy) -> bool:
    """Whether it lasts or has only just ended, and began no longer ago than matters.

    One window longer than nodes are held for: else those that fell silent last would be a group of
    their own once the first are past that time.
    """
    window = policy.silence_window_seconds
    if now - silence.since > policy.silence_hold_seconds + window:
        return False
    return silence.until is None or now - silence.until < window


def _most_within(times: list[float], window: float) -> tuple[int, float]:
    """The largest number of these sorted times that lie within one window, and the first of them.

    Of several such groups, the latest.
    """
    best, first, begin = 0, 0.0, 0
    for end, time in enumerate(times):
        while time - times[begin] > window:
            begin += 1
        if end - begin + 1 >= best:
            best, first = end - begin + 1, times[begin]
    return best, first
