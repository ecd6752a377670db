"""How much a node is to be trusted, from the failures that it is blamed for.

A failure of weight ``w`` at time ``t`` contributes ``w × 2^(−(now − t) / half-life)``; the score is
the sum. Two things keep a few mishaps from looking like many:

- the node's own failures (it was lost, had a bad condition, refused pods) within
  ``SAME_EVENT_SECONDS`` are one event, of the gravest of their weights, whoever noticed it: a node
  with eight jobs on it is lost once;
- of the crashes and hangs of one job only the newest counts, so that no job by itself can make a
  node avoided.

The score follows from the remembered failures alone. They form a set: adding one twice, or several
in another order, makes no difference. (ADR 0011)
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goodput_operator.api.node_health import (
    MAX_RECENT,
    FailureKind,
    NodeFailure,
    NodeHealthStatus,
)
from goodput_operator.api.times import format_time, parse_time
from goodput_operator.domain.model import NodeHealthView, NodeView
from goodput_operator.domain.policy import Policy

WEIGHTS: Mapping[FailureKind, float] = {
    FailureKind.NODE_LOST: 1.0,
    FailureKind.CONDITION: 1.0,
    FailureKind.POD_REFUSED: 0.5,
    FailureKind.CRASH: 0.5,
    FailureKind.HANG: 0.5,
}
SAME_EVENT_SECONDS = 300.0
USED_LAST = 0.25
"""A node with at least this score gets ranks only when those with less have no room."""
FORGOTTEN = 0.05
"""A node with less is as good as new: its NodeHealth is deleted."""
MAX_HALF_LIVES = 8.0
"""Failures older than so many half-lives are not remembered."""
MAX_DRIFT = 0.25
"""The score that is shown is written anew when it is further from the truth than this."""

OF_JOBS = frozenset({FailureKind.CRASH, FailureKind.HANG})
"""What may as well be the job's own fault."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is to be done to a NodeHealth as time goes by. ``status`` None: delete it."""

    health: NodeHealthView
    status: NodeHealthStatus | None


def score(failures: Iterable[NodeFailure], now: float, policy: Policy) -> float:
    """The node's score at ``now`` (POSIX seconds)."""
    half_life = policy.node_penalty_half_life_seconds
    total = 0.0
    for time, weight in _events(sorted(failures, key=_order)):
        total += weight * math.exp2(-max(0.0, now - time) / half_life)
    return total


def _events(failures: Iterable[NodeFailure]) -> Iterable[tuple[float, float]]:
    """Time and weight of what counts, given the failures from oldest to newest."""
    newest_of_job: dict[str, tuple[float, float]] = {}
    own: list[tuple[float, float]] = []
    for each in failures:
        time, weight = parse_time(each.time), WEIGHTS[each.kind]
        if each.kind in OF_JOBS:
            newest_of_job[each.job_uid] = (time, weight)
        elif own and time - own[-1][0] <= SAME_EVENT_SECONDS:
            own[-1] = (own[-1][0], max(own[-1][1], weight))
        else:
            own.append((time, weight))
    return (*own, *newest_of_job.values())


def merge(
    before: Iterable[NodeFailure], more: Iterable[NodeFailure], now: float, policy: Policy
) -> tuple[NodeFailure, ...]:
    """All of these failures, each attempt of a job once, newest first and not too many.

    When an attempt is told in two ways, the graver is kept: a crash may turn out to have been the
    loss of the node.
    """
    oldest = now - MAX_HALF_LIVES * policy.node_penalty_half_life_seconds
    kept: dict[tuple[str, int], NodeFailure] = {}
    for each in (*before, *more):
        key = (each.job_uid, each.attempt)
        known = kept.get(key)
        if known is None or _gravity(each) > _gravity(known):
            kept[key] = each
    recent = (each for each in kept.values() if parse_time(each.time) >= oldest)
    return tuple(sorted(recent, key=_order, reverse=True)[:MAX_RECENT])


def _gravity(failure: NodeFailure) -> tuple[float, str, str]:
    return WEIGHTS[failure.kind], failure.kind.value, failure.time


def _order(failure: NodeFailure) -> tuple[float, str, int]:
    return parse_time(failure.time), failure.job_uid, failure.attempt


def is_about(status: NodeHealthStatus, node: NodeView) -> bool:
    """Whether it is this very node, and the same machine, that the failures are of."""
    return status.node_uid == node.uid and status.system_uuid == node.system_uuid


def add(
    health: NodeHealthView | None,
    node: NodeView,
    failures: Iterable[NodeFailure],
    now: float,
    policy: Policy,
) -> NodeHealthStatus:
    """The node's health with more failures; those of a node that it has replaced are forgotten."""
    known = health.status.recent if health is not None and is_about(health.status, node) else ()
    return _status(node, merge(known, failures, now, policy), now, policy)


def _status(
    node: NodeView, recent: tuple[NodeFailure, ...], now: float, policy: Policy
) -> NodeHealthStatus:
    worth = score(recent, now, policy)
    return NodeHealthStatus(
        node_uid=node.uid,
        system_uuid=node.system_uuid,
        score=round(worth, 2),
        avoided=worth >= policy.node_penalty_avoid,
        count=len(recent),
        failures=dict(sorted(Counter(each.kind.value for each in recent).items())),
        last_failure=recent[0] if recent else None,
        recent=recent,
        updated_at=format_time(now),
    )


def scores(
    health: Iterable[NodeHealthView], nodes: Mapping[str, NodeView], now: float, policy: Policy
) -> dict[str, float]:
    """Scores of the nodes that there are and that have one, by name."""
    return {
        each.name: score(each.status.recent, now, policy)
        for each in health
        if (node := nodes.get(each.name)) is not None and is_about(each.status, node)
    }


def upkeep(
    health: Iterable[NodeHealthView], nodes: Mapping[str, NodeView], now: float, policy: Policy
) -> tuple[Upkeep, ...]:
    """What has to be deleted or shown anew: at most a few writes for each failure.

    The NodeHealth of a node that is gone goes with it, by its owner.
    """
    wanted = []
    for each in health:
        node = nodes.get(each.name)
        if node is None:
            continue
        worth = score(each.status.recent, now, policy)
        if worth < FORGOTTEN or not is_about(each.status, node):
            wanted.append(Upkeep(each, None))
        elif _is_stale(each.status, worth, policy):
            recent = merge(each.status.recent, (), now, policy)
            wanted.append(Upkeep(each, _status(node, recent, now, policy)))
    return tuple(wanted)


def _is_stale(shown: NodeHealthStatus, worth: float, policy: Policy) -> bool:
    avoided = worth >= policy.node_penalty_avoid
    return shown.avoided != avoided or abs(shown.score - worth) > MAX_DRIFT
