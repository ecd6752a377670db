"""What one step of a decision has found, and how it becomes a Plan with a whole status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from goodput_operator import constants as c
from goodput_operator.api.status import Condition, Phase, TrainingJobStatus
from goodput_operator.domain import size
from goodput_operator.domain.conditions import find, is_true, set_condition
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodView
from goodput_operator.domain.plan import Action, JobEvent, Plan, WorkloadStatusChange


class ConditionChange(NamedTuple):
    """A condition to be set beside those that every verdict sets."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the job stands, and what is to be done about it."""

    phase: Phase
    reason: str
    message: str
    actions: tuple[Action, ...] = ()
    updates: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status to set, by their Python names."""
    events: tuple[JobEvent, ...] = ()
    requeue_after: float | None = None
    commit: bool = False
    """Write this status first, guarded, and decide again."""
    conditions: tuple[ConditionChange, ...] = ()

    @property
    def changes_workload(self) -> bool:
        """It writes the status of the Workload: nothing else may, made from the same version."""
        return any(isinstance(each, WorkloadStatusChange) for each in self.actions)


def unchanged(
    context: Context,
    updates: Mapping[str, Any],
    events: tuple[JobEvent, ...],
    conditions: tuple[ConditionChange, ...] = (),
) -> Verdict:
    """The commit of a fact about a live attempt; where the job stands, and what it says, stays."""
    return Verdict(
        context.status.phase or Phase.RUNNING,
        context.status.reason or c.Reason.ALL_RANKS_READY,
        said(context),
        updates=updates,
        events=events,
        conditions=conditions,
        commit=True,
    )


def said(context: Context) -> str:
    """What the job says of itself now."""
    found = find(context.status.conditions, c.ConditionType.RUNNING)
    return found.message if found is not None else ""


def to_plan(context: Context, verdict: Verdict, cleanup: tuple[Action, ...]) -> Plan:
    """The plan: cleanup, then the verdict's actions, then the status, then the events."""
    status = render(context, verdict)
    if verdict.commit:
        return Plan(status=status, commit=True, events=verdict.events)
    return Plan(
        actions=cleanup + verdict.actions,
        status=status if status != context.status else None,
        events=verdict.events,
        requeue_after=verdict.requeue_after,
    )


def render(context: Context, verdict: Verdict) -> TrainingJobStatus:
    """The whole status that the verdict amounts to."""
    working = {rank for rank, pod in context.live_pods.items() if is_ready(pod)}
    ready = len(context.succeeded.union(working))
    if "placement" in verdict.updates and verdict.phase is not Phase.COMPLETE:
        ready = ready if verdict.updates["placement"] is not None else 0
    placement = verdict.updates.get("placement", context.placement)
    replicas = size.total(context.spec, placement)
    return context.status.model_copy(
        update={
            "attempt": context.newest_attempt,
            **verdict.updates,
            "observed_generation": context.job.generation,
            "phase": verdict.phase,
            "reason": verdict.reason,
            "conditions": _conditions(context, verdict),
            "workload": context.workload.name if context.workload else None,
            "replicas": replicas,
            "ready_replicas": ready,
            "ready": f"{ready}/{replicas}",
        }
    )


def is_ready(pod: PodView) -> bool:
    """Whether the rank works, or has done its work: its kubelet says so a moment later."""
    done = bool(pod.exits) and not any(each.exit_code for each in pod.exits)
    return pod.phase == "Succeeded" or ((pod.ready or done) and not pod.deleting)


_OVER = {Phase.COMPLETE: c.ConditionType.COMPLETE, Phase.FAILED: c.ConditionType.FAILED}


def _conditions(context: Context, verdict: Verdict) -> tuple[Condition, ...]:
    now, generation = context.now, context.job.generation
    result = context.status.conditions

    def put(type_: str, status: bool, reason: str, message: str) -> None:
        nonlocal result
        result = set_condition(result, type_, status, reason, message, now, generation)

    workload = context.workload
    if verdict.phase in _OVER:
        put(c.ConditionType.ADMITTED, False, verdict.reason, "the job is over")
        put(_OVER[verdict.phase], True, verdict.reason, verdict.message)
        if verdict.phase is Phase.COMPLETE and is_true(result, c.ConditionType.STALLED):
            put(c.ConditionType.STALLED, False, verdict.reason, verdict.message)
    elif workload is not None and workload.is_admitted:
        told = workload.admitted.message if workload.admitted else ""
        put(c.ConditionType.ADMITTED, True, c.Reason.ADMITTED, told)
    else:
        put(c.ConditionType.ADMITTED, False, verdict.reason, verdict.message)
    running = verdict.reason == c.Reason.ALL_RANKS_READY
    put(c.ConditionType.RUNNING, running, verdict.reason, verdict.message)
    suspended = verdict.phase is Phase.SUSPENDED
    if suspended or find(result, c.ConditionType.SUSPENDED) is not None:
        put(c.ConditionType.SUSPENDED, suspended, verdict.reason, verdict.message)
    if _has_ended(context, verdict) and is_true(result, c.ConditionType.MIGRATING):
        put(c.ConditionType.MIGRATING, False, verdict.reason, verdict.message)
    degraded = _degraded(context, verdict)
    if degraded is not None and (degraded[1] or find(result, c.ConditionType.DEGRADED)):
        put(*degraded)
    for each in verdict.conditions:
        put(*each)
    return result


def _degraded(context: Context, verdict: Verdict) -> ConditionChange | None:
    """Whether the gang is smaller than was asked for; without one, what was said is over."""
    placement = verdict.updates.get("placement", context.placement)
    if placement is None:
        if not is_true(context.status.conditions, c.ConditionType.DEGRADED):
            return None
        return ConditionChange(c.ConditionType.DEGRADED, False, verdict.reason, verdict.message)
    reason, message = size.shortage(context.spec, placement, context.workload)
    return ConditionChange(c.ConditionType.DEGRADED, reason != c.Reason.WHOLE_GANG, reason, message)


def _has_ended(context: Context, verdict: Verdict) -> bool:
    """Whether there is no live attempt, which alone could be about to leave a node."""
    return verdict.updates.get("placement", context.placement) is None
