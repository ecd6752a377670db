"""A gang that runs smaller than asked for becomes larger, when there is quota and room for that.

1. There has been room on nodes for at least one more rank for a while, the attempt has run for a
   while, and it was not made larger too often of late. Before that nobody is asked for anything.
2. A second Workload asks Kueue for more ranks. It names the first as the one that it replaces
   (a workload slice): Kueue admits it when there is quota for the difference, and in that moment
   the first is over. Until then nothing changes for the ranks, however long it takes.
3. The workers are asked for a checkpoint. When one is durable that is newer, or at a deadline, the
   attempt ends as *Resized*, which counts as nothing, and the next is placed on the new quota.

``status.growth`` says how far it is. It is gone with the attempt, and so is the second Workload, if
it still waits. Without room on nodes any more, what is not used is given back as ever.
"""

from collections.abc import Mapping
from dataclasses import replace

from goodput_operator import constants as c
from goodput_operator.api.spec import Role
from goodput_operator.api.status import Growth, Outcome, Phase
from goodput_operator.api.times import format_micro_time, format_time, parse_time
from goodput_operator.domain import names, size
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import ended
from goodput_operator.domain.migration import can_save, elsewhere, has_saved, save_deadline
from goodput_operator.domain.model import WorkloadView
from goodput_operator.domain.placement.gang import Placed
from goodput_operator.domain.plan import (
    Action,
    AnswerChecks,
    CreateWorkload,
    DeleteWorkload,
    JobEvent,
)
from goodput_operator.domain.room import find_place
from goodput_operator.domain.verdict import Verdict, said, unchanged

REPLACED = "WorkloadSliceReplaced"
"""Kueue's reason of ``Finished`` on a Workload whose quota another has taken over."""
_HOUR = 3600.0


def is_handing_over(context: Context, workload: WorkloadView) -> bool:
    """Whether another Workload has its quota, though it may not yet be seen to have it."""
    growth, finished = context.status.growth, workload.finished
    if growth is None or finished is None or not finished.status or finished.reason != REPLACED:
        return False
    return _has_asked(context, growth)


def tidy(context: Context) -> Verdict | None:
    """Delete what has handed its quota over, or asked for more ranks of a gang that is no more.

    Nothing runs on them, so that nothing is waited for; and one that asks must not be admitted
    beside the one that it asks for.
    """
    if not context.spent_workloads:
        return None
    status = context.status
    return Verdict(
        status.phase or Phase.PENDING,
        status.reason or c.Reason.QUOTA_RELEASED,
        said(context),
        actions=_deletions(context),
        requeue_after=1.0,
    )


def grow(context: Context, verdict: Verdict) -> Verdict:
    """The verdict about a live attempt, and with it the next step towards more ranks."""
    placement, workload = context.placement, context.workload
    if verdict.commit or verdict.reason != c.Reason.ALL_RANKS_READY:
        return verdict
    role = size.elastic_role(context.spec)
    if placement is None or workload is None or role is None:
        return verdict
    placed = size.placed(context.spec, placement)
    if placed[role.name] >= role.replicas:
        return verdict
    growth = context.status.growth
    if growth is not None and growth.workload == workload.name:
        return _use(context, verdict, growth, workload, role, placed)
    return _seek(context, verdict, workload, role, placed)


def _seek(
    context: Context,
    verdict: Verdict,
    workload: WorkloadView,
    role: Role,
    placed: Mapping[str, int],
) -> Verdict:
    """Ask Kueue for more, once that is worth it."""
    growth, now = context.status.growth, context.now
    wait = _not_before(context) - now
    more = {**placed, role.name: placed[role.name] + 1}
    if wait > 0 or not _has_room(context, more):
        again = wait if 0 < wait < _HOUR else context.policy.recheck_seconds
        return _go_on(verdict, again, None, _deletions(context))
    if growth is None:
        since = Growth(room_since=format_micro_time(now))
        return _go_on(verdict, context.policy.grow_room_seconds, since, _deletions(context))
    wait = parse_time(growth.room_since) + context.policy.grow_room_seconds - now
    if wait > 0:
        return _go_on(verdict, wait, growth)
    if growth.workload is None:
        name = names.slice_name(context.job, now)
        return unchanged(context, {"growth": growth.model_copy(update={"workload": name})}, ())
    if _has_asked(context, growth):
        return _go_on(verdict, context.policy.recheck_seconds, growth)
    ask = CreateWorkload(growth.workload, replaces=workload.name, least=more[role.name])
    return _go_on(verdict, context.policy.recheck_seconds, growth, (ask,))


def _use(
    context: Context,
    verdict: Verdict,
    growth: Growth,
    workload: WorkloadView,
    role: Role,
    placed: Mapping[str, int],
) -> Verdict:
    """Restart on the quota that there is now, after a checkpoint."""
    actions, recheck = _deletions(context), context.policy.recheck_seconds
    if not workload.is_admitted:
        return _go_on(verdict, recheck, growth, (*actions, *_answers(verdict, workload)))
    if not _has_room_for_more(context, workload, role, placed):
        return _go_on(verdict, recheck, None, actions)
    why = (
        f"there is quota and room for more than {placed[role.name]} of {role.replicas} ranks of "
        f"role {role.name}: the gang restarts larger"
    )
    if growth.asked_at is None:
        return _ask_to_save(context, growth, why)
    left = parse_time(growth.deadline or growth.asked_at) - context.now
    saved = has_saved(context, growth.asked_at)
    if left > 0 and not saved and can_save(context):
        return _go_on(verdict, left, growth, actions)
    how = "with" if saved else "without"
    message = f"{why}, {how} a new checkpoint"
    key = f"a{context.status.attempt}"
    return Verdict(
        Phase.RESTARTING,
        Outcome.RESIZED.value,
        message,
        updates={**ended(context, Outcome.RESIZED, message), "restart_at": None},
        events=(JobEvent("Normal", c.EventReason.RESIZED, message, key=key),),
        commit=True,
    )


def _ask_to_save(context: Context, growth: Growth, why: str) -> Verdict:
    deadline = save_deadline(context)
    after = " after a checkpoint" if can_save(context) else ""
    message = f"{why}{after}, at the latest at {format_time(deadline)}"
    asked = {"asked_at": format_micro_time(context.now), "deadline": format_micro_time(deadline)}
    event = JobEvent("Normal", c.EventReason.GROWING, message, key=asked["asked_at"])
    return unchanged(context, {"growth": growth.model_copy(update=asked)}, (event,))


def _has_asked(context: Context, growth: Growth) -> bool:
    """Whether its second Workload is there, and not over."""
    return any(each.name == growth.workload and not each.is_finished for each in context.workloads)


def _go_on(
    verdict: Verdict, again: float, growth: Growth | None, actions: tuple[Action, ...] = ()
) -> Verdict:
    waits = [each for each in (verdict.requeue_after, again) if each is not None]
    return replace(
        verdict,
        actions=(*verdict.actions, *actions),
        updates={**verdict.updates, "growth": growth},
        requeue_after=max(0.1, min(waits)),
    )


def _not_before(context: Context) -> float:
    """When the attempt may be made larger, at the earliest."""
    placement, policy = context.placement, context.policy
    if placement is None or placement.running_at is None or policy.grow_per_hour == 0:
        return float("inf")
    after = parse_time(placement.running_at) + policy.grow_after_seconds
    records = context.status.attempts
    times = [parse_time(each.ended_at) for each in records if each.outcome is Outcome.RESIZED]
    if len(times) < policy.grow_per_hour:
        return after
    return max(after, sorted(times)[-policy.grow_per_hour] + _HOUR)


def _has_room_for_more(
    context: Context, workload: WorkloadView, role: Role, placed: Mapping[str, int]
) -> bool:
    """Whether the next attempt would have at least one rank more than this one."""
    more = placed[role.name] + 1
    granted = size.granted(context.spec, workload)
    return granted[role.name] >= more and _has_room(context, {**granted, role.name: more})


def _has_room(context: Context, counts: Mapping[str, int]) -> bool:
    """Were the gang not where it is; not on nodes that keep failing jobs."""
    return isinstance(find_place(elsewhere(context), use_avoided=False, counts=counts), Placed)


def _deletions(context: Context) -> tuple[Action, ...]:
    return tuple(DeleteWorkload(each.name, each.uid) for each in context.spent_workloads)


def _answers(verdict: Verdict, workload: WorkloadView) -> tuple[Action, ...]:
    """Our checks are Ready: the gang has its place, and looks for a larger one."""
    checks = workload.unanswered_checks
    if verdict.changes_workload or not checks:
        return ()
    version = workload.resource_version
    return (AnswerChecks(workload.name, version, checks, "Ready", "the gang runs"),)
