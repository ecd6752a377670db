"""Budgets and backoff: whether a gang starts again, and when."""

from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.spec import Backoff
from goodput_operator.api.status import AttemptRecord, Cause, Outcome, Phase
from goodput_operator.api.times import format_micro_time, format_time, parse_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import ended, over
from goodput_operator.domain.failures import Failure, describe_loss
from goodput_operator.domain.plan import JobEvent
from goodput_operator.domain.verdict import Verdict

_OUTCOME = {
    Cause.CRASH: Outcome.CRASHED,
    Cause.INFRASTRUCTURE: Outcome.INFRASTRUCTURE_LOST,
    Cause.PREEMPTION: Outcome.PREEMPTED,
}


def exponential(base: float, maximum: float, times: int) -> float:
    """``base × 2^(times − 1)`` seconds, at most ``maximum``; 0 before the first time."""
    if times <= 0:
        return 0.0
    # The exponent is bounded, so that a large count can't overflow.
    return min(maximum, base * 2.0 ** min(times - 1, 62))


def after_failure(context: Context, failure: Failure) -> Verdict:
    """The commit that ends the live attempt because of a failure, and sets when the next may start.

    Whether the budget allows a next one is decided afterwards, in ``out_of_budget``.
    """
    placement = context.placement
    attempt = placement.attempt if placement else context.status.attempt
    updates = ended(
        context, _OUTCOME[failure.cause], failure.message, failure.cause, failure.lost_nodes
    )
    wait = 0.0
    if failure.cause is Cause.CRASH:
        wait = _crash_wait(context.spec.fault_tolerance.crash_backoff, updates["restarts"].crash)
    updates["restart_at"] = format_micro_time(context.now + wait) if wait else None
    events = (JobEvent("Warning", failure.event, failure.message, key=f"a{attempt}"),)
    return Verdict(
        Phase.RESTARTING,
        _OUTCOME[failure.cause].value,
        failure.message,
        updates=updates,
        events=events,
        commit=True,
    )


def _crash_wait(backoff: Backoff, crashes: int) -> float:
    return exponential(backoff.base_seconds, backoff.max_seconds, crashes)


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
            name for name in record.nodes if (node := nodes.get(name)) is None or node.lost
        )
        if lost:
            return _taken_back(context, record, lost)
    return None


def _taken_back(context: Context, record: AttemptRecord, lost: tuple[str, ...]) -> Verdict:
    nodes = context.snapshot.nodes
    told = "; ".join(describe_loss(name, nodes.get(name)) for name in lost[:3])
    message = f"{told}, which explains why {record.message}"
    revised = record.model_copy(
        update={
            "outcome": Outcome.INFRASTRUCTURE_LOST,
            "cause": Cause.INFRASTRUCTURE,
            "lost_nodes": lost,
            "message": message,
        }
    )
    restarts = context.status.restarts
    updates: dict[str, Any] = {
        "attempts": tuple(
            revised if each.attempt == record.attempt else each for each in context.status.attempts
        ),
        "restarts": restarts.model_copy(
            update={
                "crash": max(0, restarts.crash - 1),
                "infrastructure": restarts.infrastructure + 1,
            }
        ),
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
    """Failed, when a budget is used up; or the wait until a crash is surely a crash."""
    tolerance, restarts = context.spec.fault_tolerance, context.status.restarts
    record = last_record(context)
    told = record.message if record else ""
    limit = tolerance.max_infrastructure_restarts
    if limit is not None and restarts.infrastructure > limit:
        return over(
            context,
            Phase.FAILED,
            c.Reason.INFRASTRUCTURE_BUDGET_EXHAUSTED,
            f"spec.faultTolerance.maxInfrastructureRestarts of {limit} is used up: {told}",
            {},
        )
    limit = tolerance.max_crash_restarts
    if restarts.crash <= limit:
        return None
    message = f"spec.faultTolerance.maxCrashRestarts of {limit} is used up: {told}"
    wait = _until_attributed(context, record)
    if wait > 0:
        return Verdict(
            Phase.RESTARTING,
            c.Reason.CRASH_BUDGET_EXHAUSTED,
            f"{message}; waiting until {format_time(context.now + wait)} "
            "in case a lost node explains it",
            requeue_after=wait,
        )
    return over(context, Phase.FAILED, c.Reason.CRASH_BUDGET_EXHAUSTED, message, {})


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
