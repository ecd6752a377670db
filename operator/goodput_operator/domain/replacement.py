"""Restart scope ``Failed``: lost ranks are replaced, and the others go on.

For frameworks whose ranks find together again by themselves. The rank that hosts their rendezvous
(rank 0 of the first role) cannot be replaced under them, so its loss ends the attempt as under
scope ``Gang``; and so does everything that one attempt cannot mend: no room for the lost ranks
alone, a budget that is used up, a rule that says Fail.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.failure_rules import RuleAction
from goodput_operator.api.spec import RestartScope
from goodput_operator.api.status import (
    MAX_ATTEMPT_RECORDS,
    Cause,
    Phase,
    Placement,
    Replacement,
    Restarts,
)
from goodput_operator.api.times import format_micro_time, parse_time
from goodput_operator.domain import restart, volumes
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import is_charged
from goodput_operator.domain.failures import Failure, lost_ranks, name_list, rank_name
from goodput_operator.domain.placement import codec
from goodput_operator.domain.placement.gang import Placed
from goodput_operator.domain.plan import CreatePod, JobEvent
from goodput_operator.domain.room import find_room
from goodput_operator.domain.verdict import Verdict

Rank = tuple[str, int]


def replace_lost(context: Context, failure: Failure) -> Verdict | None:
    """The commit that gives every lost rank its next incarnation; None when the gang must restart.

    All ranks that are lost by now are replaced at once, whichever was seen first.
    """
    placement, tolerance = context.placement, context.spec.fault_tolerance
    if placement is None or tolerance.restart_scope is not RestartScope.FAILED:
        return None
    lost = lost_ranks(context)
    host = (context.spec.roles[0].name, 0)
    fatal = failure.rule is not None and failure.rule.action is RuleAction.FAIL
    if not lost or host in lost or len(lost) == len(context.ranks) or fatal:
        return None
    if placement.created_at is None:
        return None
    counted = _counted(context, failure)
    if restart.used_up(context, counted["charged"]) is not None:
        return None
    moved = _places(context, failure, lost)
    if moved is None:
        return None
    return _commit(context, placement, failure, moved, counted)


def create(context: Context, placement: Placement) -> Verdict:
    """Create the pods of the ranks that were replaced, once they may start."""
    wait = _wait(context, placement)
    if wait > 0:
        return Verdict(
            Phase.RESTARTING,
            c.Reason.BACKING_OFF,
            f"the ranks that crashed are replaced at {context.status.restart_at}",
            requeue_after=wait,
        )
    there = context.live_pods.keys() | context.succeeded
    missing = [rank for rank in context.ranks if rank not in there]
    actions = tuple(
        CreatePod(
            placement.attempt,
            role,
            rank,
            context.ranks[role, rank],
            context.incarnations.get((role, rank), 0),
        )
        for role, rank in missing
    )
    return Verdict(
        Phase.STARTING,
        c.Reason.RANKS_REPLACED,
        f"attempt {placement.attempt}: {name_list([rank_name(each) for each in missing])} replaced",
        actions=actions,
        updates={
            "placement": placement.model_copy(update={"replacing": False}),
            "restart_at": None,
        },
        requeue_after=context.policy.bind_seconds,
    )


def _wait(context: Context, placement: Placement) -> float:
    restart_at = context.status.restart_at
    return parse_time(restart_at) - context.now if restart_at and placement.replacing else 0.0


def _counted(context: Context, failure: Failure) -> dict[str, Restarts]:
    """``restarts`` and ``charged`` with this failure.

    Crashes of the moments before, that this loss explains, are put down to it.
    """
    status = context.status
    restarts, charged = status.restarts, status.charged
    if failure.lost_nodes:
        for each in status.replacements:
            recent = context.now - parse_time(each.at) <= context.policy.attribution_seconds
            if recent and each.cause is Cause.CRASH and each.attempt == status.attempt:
                restarts = restarts.plus(Cause.CRASH, -1).plus(Cause.INFRASTRUCTURE)
                if is_charged(each.rule):
                    charged = charged.plus(Cause.CRASH, -1).plus(Cause.INFRASTRUCTURE)
    return {
        "restarts": restarts.plus(failure.cause),
        "charged": charged.plus(failure.cause) if is_charged(failure.rule) else charged,
    }


def _in_a_row(context: Context) -> int:
    """How many replacements came one soon after the other, up to now."""
    count, later = 0, context.now
    for each in reversed(context.status.replacements):
        at = parse_time(each.at)
        if later - at > restart.SHORT_SECONDS:
            break
        count, later = count + 1, at
    return count


def _places(
    context: Context, failure: Failure, lost: tuple[Rank, ...]
) -> Mapping[Rank, str] | None:
    """A node for each lost rank, beside the ranks that go on; None when there is no room."""
    pods = context.live_pods
    leaving = frozenset(pods[rank].uid for rank in lost if rank in pods)
    refused = frozenset({failure.refused_by} if failure.refused_by else ())
    counts = Counter(role for role, _ in lost)
    outcome = find_room(context, counts, leaving=leaving, shunned=refused)
    if not isinstance(outcome, Placed):
        return None
    left = {role: iter(nodes) for role, nodes in outcome.nodes_by_role.items()}
    moved = {(role, rank): next(left[role]) for role, rank in lost}
    whole: dict[str, list[str]] = defaultdict(list)
    for (role, rank), node in context.ranks.items():
        whole[role].append(moved.get((role, rank), node))
    spread = Placed({role: tuple(nodes) for role, nodes in whole.items()})
    return moved if isinstance(volumes.check_spread(context, spread), Placed) else None


def _commit(
    context: Context,
    placement: Placement,
    failure: Failure,
    moved: Mapping[Rank, str],
    counted: Mapping[str, Restarts],
) -> Verdict:
    status, now = context.status, format_micro_time(context.now)
    names = name_list([rank_name(rank) for rank in moved])
    message = f"{failure.message}; {names} replaced, the others go on"
    record = Replacement(
        attempt=placement.attempt,
        ranks=names,
        cause=failure.cause,
        rule=failure.rule,
        message=failure.message,
        at=now,
    )
    after = codec.replaced(placement, moved)
    wait = restart.wait_before(context, failure, counted["charged"], _in_a_row(context))
    updates: dict[str, Any] = {
        **counted,
        "placement": after.model_copy(update={"replacing": True, "replaced_at": now}),
        "replacements": (*status.replacements, record)[-MAX_ATTEMPT_RECORDS:],
        "restart_at": format_micro_time(context.now + wait) if wait else None,
    }
    if failure.refused_by is not None:
        updates["excluded_nodes"] = restart.excluded(context, {failure.refused_by: failure.message})
    key = f"a{placement.attempt}-{now}"
    return Verdict(
        Phase.RESTARTING,
        c.Reason.RANKS_REPLACED,
        message,
        updates=updates,
        events=(
            JobEvent("Warning", failure.event, failure.message, key=key),
            JobEvent("Normal", c.EventReason.RANKS_REPLACED, f"{names} replaced", key=key),
        ),
        commit=True,
    )
