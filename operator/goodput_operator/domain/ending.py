"""How an attempt ends, and how a job does."""

from dataclasses import replace
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.failure_rules import RuleAction
from goodput_operator.api.spec import PodRetention
from goodput_operator.api.status import (
    MAX_ATTEMPT_RECORDS,
    AttemptRecord,
    Cause,
    FiredRule,
    Outcome,
    Phase,
    Placement,
    Restarts,
)
from goodput_operator.api.times import format_micro_time, format_time, parse_time
from goodput_operator.domain import hang
from goodput_operator.domain.blame import find_blame
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodView
from goodput_operator.domain.plan import (
    Action,
    DeleteJob,
    DeletePod,
    FinishWorkload,
    JobEvent,
    Plan,
)
from goodput_operator.domain.verdict import Verdict

SETTLING_SECONDS = 5.0
"""How long a pod with a failed container may take to fail as a whole, before it is deleted."""

_OUTCOMES_WITH_GRACE = frozenset(
    {
        Outcome.SUCCEEDED,
        Outcome.SUSPENDED,
        Outcome.PREEMPTED,
        Outcome.MIGRATED,
        Outcome.RESIZED,
        Outcome.POWER_SHED,
        Outcome.EVICTED,
        Outcome.DEADLINE_EXCEEDED,
    }
)
"""Ends of a healthy gang: its ranks still can save together, so they get their own grace."""


def ended(
    context: Context,
    outcome: Outcome,
    message: str,
    cause: Cause | None = None,
    lost_nodes: tuple[str, ...] = (),
    rule: FiredRule | None = None,
    suspects: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The status fields that end the live attempt: nothing of it is looked at any more.

    Written before any of its pods is deleted, so that our own deletions never look like failures.
    ``suspects`` are the nodes that a hang is put down to, if there are any.
    """
    placement, status = context.placement, context.status
    if placement is None:
        raise ValueError("there is no live attempt to end")
    active = active_now(placement, context.now)
    record = AttemptRecord(
        attempt=placement.attempt,
        outcome=outcome,
        cause=cause,
        rule=rule,
        message=message,
        placed_at=placement.committed_at,
        running_at=placement.running_at,
        ended_at=format_micro_time(context.now),
        replicas=context.replicas,
        nodes=placement.nodes,
        lost_nodes=lost_nodes,
        # What the user has a rule for, and does not count, is no fault of the node's.
        blame=find_blame(context, cause, lost_nodes, suspects) if is_charged(rule) else None,
        resume_step=placement.resume_step,
        last_step=context.progress.step if context.progress is not None else None,
    )
    updates: dict[str, Any] = {
        "placement": None,
        "move": None,
        "move_not_before": None,
        "growth": None,
        "attempts": (*status.attempts, record)[-MAX_ATTEMPT_RECORDS:],
        "active_seconds": round(status.active_seconds + active, 3),
        "node_seconds": round(status.node_seconds + len(placement.nodes) * active, 3),
    }
    forgives = _forgives(context) and (cause is not Cause.HANG or hang.reached(context) is not None)
    charged = Restarts() if forgives else hang.forgiven(context)
    if cause is Cause.HANG:
        updates |= hang.accounted(context)
    if cause is not None:
        updates["restarts"] = status.restarts.plus(cause)
        charged = charged.plus(cause) if is_charged(rule) else charged
    updates["charged"] = charged
    return updates


def is_charged(rule: FiredRule | None) -> bool:
    """Whether a failure that matched this rule counts against the budget of its cause."""
    return rule is None or rule.action is RuleAction.RESTART


def _forgives(context: Context) -> bool:
    """Whether the live attempt has trained for so long that what came before it is forgiven."""
    enough = context.spec.fault_tolerance.forgive_after_seconds
    return enough > 0 and trained_seconds(context) >= enough


def trained_seconds(context: Context) -> float:
    """For how long the live attempt has trained: until its last step, if it reports steps.

    0 before all its ranks were running. A gang that hangs does not earn its forgiveness.
    """
    placement, progress = context.placement, context.status.progress
    if placement is None or placement.running_at is None:
        return 0.0
    until = context.now
    if progress is not None:
        reports = progress.attempt == placement.attempt and progress.first_step_at is not None
        until = parse_time(progress.reported_at) if reports else 0.0
    return max(0.0, until - parse_time(placement.running_at))


def active_now(placement: Placement | None, now: float) -> float:
    """Seconds for which the attempt of this placement has had pods."""
    if placement is None or placement.created_at is None:
        return 0.0
    return max(0.0, now - parse_time(placement.created_at))


def over(
    context: Context, phase: Phase, reason: str, message: str, updates: dict[str, Any]
) -> Verdict:
    """The commit that ends the job for good."""
    complete = phase is Phase.COMPLETE
    event = JobEvent(
        "Normal" if complete else "Warning",
        c.EventReason.COMPLETED if complete else c.EventReason.FAILED,
        message,
    )
    return Verdict(
        phase,
        reason,
        message,
        updates={
            **updates,
            "placement": None,
            "requeue": None,
            "restart_at": None,
            "waiting_since": None,
            "completion_time": format_time(context.now),
        },
        events=(event,),
        commit=True,
    )


def settle(context: Context) -> Plan:
    """What remains to do for a job that is over: stop, free the quota, expire. Never a start.

    The quota is freed once the pods are gone, since until then they use what it stands for.
    """
    actions: list[Action] = list(stop_pods(context))
    if context.all_gone:
        complete = context.status.phase is Phase.COMPLETE
        actions += [
            FinishWorkload(each.name, each.resource_version, complete, _last_message(context))
            for each in context.workloads
            if not each.is_finished
        ]
    wait = _time_to_live(context)
    if wait is not None and wait <= 0:
        return Plan(actions=(*actions, DeleteJob(context.job.uid)))
    pending = None if context.all_gone else context.recheck_seconds
    waits = [each for each in (wait, pending) if each is not None]
    plan = Plan(actions=tuple(actions), requeue_after=min(waits) if waits else None)
    return after_settling(context, plan)


def stop_pods(context: Context) -> tuple[DeletePod, ...]:
    """Deletions of what should no longer run, and of finished pods that nobody keeps."""
    return tuple(
        DeletePod(pod.name, pod.uid, _grace(context, pod.attempt))
        for pod in context.stale_pods
        if not pod.deleting
        and not (pod.terminal and _kept(context, pod.attempt, pod.phase))
        and not is_settling(context, pod)
    )


def is_settling(context: Context, pod: PodView) -> bool:
    """A container has just failed, and the pod is about to: deleted now, its logs would be lost."""
    if pod.terminal or pod.deleting:
        return False
    ends = [each.finished_at for each in pod.exits if each.exit_code and each.finished_at]
    return bool(ends) and context.now - min(ends) < SETTLING_SECONDS


def after_settling(context: Context, plan: Plan) -> Plan:
    """The plan, made anew soon if a pod was left to fail as a whole."""
    if plan.commit or not any(is_settling(context, pod) for pod in context.stale_pods):
        return plan
    wait = min(plan.requeue_after or SETTLING_SECONDS, SETTLING_SECONDS)
    return replace(plan, requeue_after=wait)


def _kept(context: Context, attempt: int, phase: str) -> bool:
    """Whether a finished pod stays for its logs."""
    if attempt != context.status.attempt:
        return False
    retention = context.spec.pod_retention
    return retention is PodRetention.ALL or (retention is PodRetention.FAILED and phase == "Failed")


def _grace(context: Context, attempt: int) -> int | None:
    """Grace of the pods of an attempt that has ended; None: their own."""
    for record in context.status.attempts:
        if record.attempt == attempt:
            healthy = record.outcome in _OUTCOMES_WITH_GRACE
            return None if healthy else context.policy.restart_grace_seconds
    return context.policy.restart_grace_seconds


def _time_to_live(context: Context) -> float | None:
    ttl, completed = context.spec.ttl_seconds_after_finished, context.status.completion_time
    if ttl is None or completed is None:
        return None
    return parse_time(completed) + ttl - context.now


def _last_message(context: Context) -> str:
    for condition in context.status.conditions:
        if condition.type in (c.ConditionType.COMPLETE, c.ConditionType.FAILED):
            return condition.message
    return ""
