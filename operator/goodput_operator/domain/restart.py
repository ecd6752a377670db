"""Budgets and backoff: whether a gang starts again, and when."""

from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.failure_rules import RuleAction
from goodput_operator.api.status import (
    AttemptRecord,
    Cause,
    ExcludedNode,
    Outcome,
    Phase,
    Restarts,
)
from goodput_operator.api.times import format_micro_time, format_time, parse_time
from goodput_operator.domain import quota
from goodput_operator.domain.blame import of_lost
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import ended, is_charged, over
from goodput_operator.domain.failures import Failure, describe_loss
from goodput_operator.domain.plan import JobEvent
from goodput_operator.domain.verdict import Verdict

SHORT_SECONDS = 60.0
"""An attempt that is lost sooner than this has not lasted."""
MAX_EXCLUSION = 512
"""Characters of why a node is left out."""

_CRASHED = frozenset({Outcome.CRASHED})
_LOST = frozenset({Outcome.INFRASTRUCTURE_LOST, Outcome.PREEMPTED})

_OUTCOME = {
    Cause.CRASH: Outcome.CRASHED,
    Cause.INFRASTRUCTURE: Outcome.INFRASTRUCTURE_LOST,
    Cause.PREEMPTION: Outcome.PREEMPTED,
    Cause.HANG: Outcome.HUNG,
    Cause.MIGRATION: Outcome.MIGRATED,
    Cause.POWER_SHED: Outcome.POWER_SHED,
}


def exponential(base: float, maximum: float, times: int) -> float:
    """``base × 2^(times − 1)`` seconds, at most ``maximum``; 0 before the first time."""
    if times <= 0:
        return 0.0
    # The exponent is bounded, so that a large count can't overflow.
    return min(maximum, base * 2.0 ** min(times - 1, 62))


def after_failure(context: Context, failure: Failure) -> Verdict:
    """The commit that ends the live attempt because of a failure, and sets when the next may start.

    Whether the budget allows a next one is decided afterwards, in ``out_of_budget``. An attempt
    that had no pods yet is ended too, but it was no restart, and counts against nothing.
    """
    begun = bool(context.live_pods) or (
        context.placement is not None and context.placement.created_at is not None
    )
    updates = ended(
        context,
        _OUTCOME[failure.cause],
        failure.message,
        failure.cause if begun else None,
        failure.lost_nodes,
        failure.rule if begun else None,
        failure.suspects,
    )
    in_a_row = _short(context, _CRASHED if failure.cause is Cause.CRASH else _LOST)
    wait = wait_before(context, failure, updates["charged"], in_a_row)
    updates["restart_at"] = format_micro_time(context.now + wait) if wait else None
    happened_at = context.now if failure.happened_at is None else failure.happened_at
    *earlier, record = updates["attempts"]
    record = record.model_copy(
        update={
            "failed_at": format_micro_time(min(happened_at, context.now)),
            "wait_seconds": round(wait, 3),
        }
    )
    updates["attempts"] = (*earlier, record)
    if failure.refused_by is not None:
        updates["excluded_nodes"] = excluded(context, {failure.refused_by: failure.message})
    key = f"a{context.status.attempt}"
    return Verdict(
        Phase.RESTARTING,
        _OUTCOME[failure.cause].value,
        failure.message,
        updates=updates,
        events=(JobEvent("Warning", failure.event, failure.message, key=key),),
        commit=True,
    )


def excluded(context: Context, failed: Mapping[str, str]) -> tuple[ExcludedNode, ...]:
    """The nodes to leave out of the next placements: those that have failed now, with what they
    said, and those whose time is not over."""
    until = format_time(context.now + context.policy.exclusion_seconds)
    found = {
        each.node: each
        for each in context.status.excluded_nodes
        if parse_time(each.until) > context.now
    }
    for node, message in failed.items():
        found[node] = ExcludedNode(node=node, message=message[:MAX_EXCLUSION], until=until)
    return tuple(found[name] for name in sorted(found))


def wait_before(context: Context, failure: Failure, charged: Restarts, in_a_row: int) -> float:
    """Seconds until what was lost starts again.

    What the job is not to blame for restarts at once, unless it failed several times in a row
    without lasting: then something is wrong that another restart does not mend, and pods must not
    be created in a storm.
    """
    if failure.cause is Cause.CRASH:
        backoff = context.spec.fault_tolerance.crash_backoff
        crashes = charged.crash if is_charged(failure.rule) else 1 + in_a_row
        return exponential(backoff.base_seconds, backoff.max_seconds, crashes)
    if failure.cause is Cause.MIGRATION:
        return 0.0
    # A lost node explains itself and is not used again, so one more is allowed at once.
    times = in_a_row - (1 if failure.lost_nodes else 0)
    return exponential(
        context.policy.requeue_base_seconds, context.policy.requeue_max_seconds, times
    )


def _short(context: Context, outcomes: frozenset[Outcome]) -> int:
    """How many attempts in a row, before the one that ends now, came soon to an end like these."""
    count = 0
    for record in reversed(context.status.attempts):
        lasted = parse_time(record.ended_at) - parse_time(record.placed_at)
        if record.outcome not in outcomes or lasted > SHORT_SECONDS:
            break
        count += 1
    return count


def reattribute(context: Context) -> Verdict | None:
    """Put a crash down to a node that has turned out lost since.

    Ranks crash within moments of losing a peer, long before anybody notices that its node is dead.
    Such a crash is taken back from the user's budget, and its backoff with it, also when the next
    attempt has begun meanwhile, perhaps on that very node.
    """
    nodes = context.snapshot.nodes
    for record in context.status.attempts:
        if record.cause is not Cause.CRASH or not _recent(context, record):
            continue
        lost = tuple(
            name
            for name in record.nodes
            if ((node := nodes.get(name)) is None or node.lost)
            and not _worked_since(context, record, name)
        )
        if lost:
            return _taken_back(context, record, lost)
    return None


def _worked_since(context: Context, record: AttemptRecord, node: str) -> bool:
    """Whether a later attempt has run on the node: then it was not lost when that one crashed."""
    live = (context.placement,) if context.placement is not None else ()
    return any(
        later.attempt > record.attempt and later.running_at is not None and node in later.nodes
        for later in (*context.status.attempts, *live)
    )


def _taken_back(context: Context, record: AttemptRecord, lost: tuple[str, ...]) -> Verdict:
    nodes = context.snapshot.nodes
    told = "; ".join(describe_loss(name, nodes.get(name)) for name in lost[:3])
    message = f"{told}, which explains why {record.message}"
    revised = record.model_copy(
        update={
            "outcome": Outcome.INFRASTRUCTURE_LOST,
            "cause": Cause.INFRASTRUCTURE,
            "rule": None,
            "lost_nodes": lost,
            "blame": of_lost(context, lost),
            "message": message,
        }
    )
    status = context.status
    charged = status.charged
    if is_charged(record.rule):
        charged = charged.plus(Cause.CRASH, -1)
    updates: dict[str, Any] = {
        "attempts": tuple(
            revised if each.attempt == record.attempt else each for each in status.attempts
        ),
        "restarts": status.restarts.plus(Cause.CRASH, -1).plus(Cause.INFRASTRUCTURE),
        "charged": charged.plus(Cause.INFRASTRUCTURE),
        "restart_at": None,
    }
    phase = context.status.phase if context.placement is not None else None
    return Verdict(
        phase or Phase.RESTARTING,
        Outcome.INFRASTRUCTURE_LOST.value,
        message,
        updates=updates,
        events=(JobEvent("Warning", c.EventReason.NODE_LOST, message, key=f"a{record.attempt}"),),
        commit=True,
    )


def out_of_budget(context: Context) -> Verdict | None:
    """Failed, when a rule says so or a budget is used up; or the wait until that is sure."""
    record = last_record(context)
    found = _final(context, record)
    if found is None:
        return None
    reason, message = found
    wait = _until_attributed(context, record)
    if wait <= 0:
        return over(context, Phase.FAILED, reason, message, {})
    return Verdict(
        Phase.RESTARTING,
        reason,
        f"{message}; waiting until {format_time(context.now + wait)} "
        "in case a lost node explains it",
        actions=quota.releases(context),
        requeue_after=wait,
    )


def _final(context: Context, record: AttemptRecord | None) -> tuple[str, str] | None:
    """Reason and message of why the job is not to go on; None if it is."""
    told = record.message if record else ""
    if record is not None and record.rule is not None and record.rule.action is RuleAction.FAIL:
        return c.Reason.FAILURE_RULE, told
    found = used_up(context, context.status.charged)
    return (found[0], f"{found[1]}: {told}") if found else None


def used_up(context: Context, charged: Restarts) -> tuple[str, str] | None:
    """Reason and message of the first budget that is used up; None if none is."""
    tolerance = context.spec.fault_tolerance
    budgets = (
        (
            Cause.INFRASTRUCTURE,
            "maxInfrastructureRestarts",
            tolerance.max_infrastructure_restarts,
            c.Reason.INFRASTRUCTURE_BUDGET_EXHAUSTED,
        ),
        (
            Cause.PREEMPTION,
            "maxPreemptionRestarts",
            tolerance.max_preemption_restarts,
            c.Reason.PREEMPTION_BUDGET_EXHAUSTED,
        ),
        (
            Cause.HANG,
            "maxHangRestarts",
            tolerance.max_hang_restarts,
            c.Reason.HANG_BUDGET_EXHAUSTED,
        ),
        (
            Cause.CRASH,
            "maxCrashRestarts",
            tolerance.max_crash_restarts,
            c.Reason.CRASH_BUDGET_EXHAUSTED,
        ),
    )
    for cause, field, limit, reason in budgets:
        if limit is not None and charged.of(cause) > limit:
            return reason, f"spec.faultTolerance.{field} of {limit} is used up"
    return None


def last_record(context: Context) -> AttemptRecord | None:
    """What became of the newest attempt that has ended."""
    return context.status.attempts[-1] if context.status.attempts else None


def _recent(context: Context, record: AttemptRecord) -> bool:
    return context.now - parse_time(record.ended_at) <= context.policy.attribution_seconds


def _until_attributed(context: Context, record: AttemptRecord | None) -> float:
    """Seconds until no lost node can explain the crash any more.

    Zero at once when every node of the gang has shown a sign of life after it.
    """
    if record is None or record.cause is not Cause.CRASH:
        return 0.0
    ended_at = parse_time(record.ended_at)
    nodes = [context.snapshot.nodes.get(name) for name in record.nodes]
    if all(node is not None and (node.heartbeat_at or 0.0) > ended_at for node in nodes):
        return 0.0
    return max(0.0, ended_at + context.policy.attribution_seconds - context.now)
