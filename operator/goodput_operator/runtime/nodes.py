"""Nodes as decisions see them: what their Node object says, their Lease, and their silence."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from goodput_operator.domain.model import Lease, NodeView
from goodput_operator.domain.silence import next_silence


@dataclass(frozen=True, slots=True)
class LeaseSign:
    """What polling has shown of a node's Lease. Times are POSIX seconds by our clock."""

    state: Lease
    unchanged_since: float
    alive_at: float | None = None
    """When it was surely alive, because it has renewed its Lease since."""


class Nodes:
    """Views by name, with what is remembered of each."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeView] = {}
        self._signs: Mapping[str, LeaseSign] = {}

    def put(self, view: NodeView, now: float) -> bool:
        """Take a node over as its object is now; whether more than its heartbeat has changed."""
        before = self.by_name.get(view.name)
        after = self._complete(view, before, now)
        self.by_name[view.name] = after
        return before is None or replace(before, heartbeat_at=after.heartbeat_at) != after

    def drop(self, name: str) -> None:
        """A node is gone."""
        self.by_name.pop(name, None)

    def put_leases(self, signs: Mapping[str, LeaseSign], now: float) -> set[str]:
        """What a poll has shown, of all nodes; the names of those about which that is news."""
        self._signs = signs
        return {view.name for view in list(self.by_name.values()) if self._look_again(view, now)}

    def _look_again(self, view: NodeView, now: float) -> bool:
        sign = self._signs.get(view.name)
        state = sign.state if sign else Lease.UNKNOWN
        if state is not view.lease or state in (Lease.LATE, Lease.STALE):
            return self.put(view, now)
        if sign and sign.alive_at and sign.alive_at > (view.heartbeat_at or 0.0):
            self.by_name[view.name] = replace(view, heartbeat_at=sign.alive_at)
        return False

    def _complete(self, view: NodeView, before: NodeView | None, now: float) -> NodeView:
        sign = self._signs.get(view.name)
        heard = (view.heartbeat_at, sign.alive_at if sign else None)
        after = replace(
            view,
            lease=sign.state if sign else Lease.UNKNOWN,
            heartbeat_at=max((each for each in heard if each is not None), default=None),
        )
        since = _silent_since(after, sign, now) if after.unheard else now
        return replace(
            after,
            silence=next_silence(before, after, since),
            seen_lost_at=_seen_lost_at(before, now) if after.lost else None,
        )


def _seen_lost_at(before: NodeView | None, now: float) -> float:
    """When a lost node was first known to be: now, or when it was seen before."""
    seen = before.seen_lost_at if before is not None else None
    return now if seen is None else seen


def _silent_since(node: NodeView, sign: LeaseSign | None, now: float) -> float:
    """When a node fell silent: the earliest sign of it that there is."""
    times = [now]
    if node.unknown and node.ready_since is not None:
        times.append(node.ready_since)
    if sign is not None and node.lease in (Lease.LATE, Lease.STALE):
        times.append(sign.unchanged_since)
    return min(times)
