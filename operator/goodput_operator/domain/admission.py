"""The job without a live attempt: its Workload, its quota, and its next placement.

The steps are in the order in which they must hold. Each looks only at what is observed, so that
the operator may be killed between any two of them.
"""

from goodput_operator import constants as c
from goodput_operator.api.status import AttemptRecord, Outcome, Phase, Placement, Requeue
from goodput_operator.api.times import format_micro_time, parse_time
from goodput_operator.domain import (
    conditions,
    elastic,
    growth,
    handover,
    quota,
    restart,
    size,
    trust,
    volumes,
)
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import WorkloadView
from goodput_operator.domain.placement import codec
from goodput_operator.domain.placement.gang import NoPlace, Placed
from goodput_operator.domain.plan import (
    CreateWorkload,
    DeleteWorkload,
    JobEvent,
    SetWorkloadActive,
)
from goodput_operator.domain.remedies import with_remedy
from goodput_operator.domain.room import find_place, rank_group
from goodput_operator.domain.verdict import Verdict

_REFUSED = frozenset({"Inadmissible", "Misconfigured", "NoMatchingFlavor", "Suspended"})
"""Reasons of Kueue for a Workload that waiting alone does not help.

All but the first where its feature UnadmittedWorkloadsObservability is on.
"""


def advance(context: Context) -> Verdict:
    """One step towards the next attempt, or the reason why there is none."""
    return (
        growth.tidy(context)
        or _obsolete(context)
        or _suspended(context)
        or _gives_back(context)
        or _malformed(context)
        or _unqueued(context)
        or _without_volumes(context)
        or _missing(context)
        or _evicted(context)
        or _inactive(context)
        or _queued(context)
        or _checked_by_others(context)
        or _backing_off(context)
        or handover.saving(context)
        or _place(context)
    )


def _suspended(context: Context) -> Verdict | None:
    if not context.spec.suspend:
        return None
    workload, message = context.workload, "spec.suspend is true"
    step = quota.withdraw(context, workload) if workload else None
    if step is None and workload is not None and not workload.deactivated_by_us:
        # Somebody else had deactivated it; resuming the job is then to activate it all the same.
        step = {"actions": (SetWorkloadActive(workload.name, False),)}
    if step is not None:
        return Verdict(Phase.STOPPING, c.Reason.SUSPENDED_BY_USER, message, **step)
    if not context.all_gone:
        return _stopping(context, c.Reason.SUSPENDED_BY_USER)
    updates = {"requeue": None, "waiting_since": None, "restart_at": None}
    return Verdict(Phase.SUSPENDED, c.Reason.SUSPENDED_BY_USER, message, updates=updates)


def _stopping(context: Context, reason: str) -> Verdict:
    left = [pod.name for pod in context.pods if not context.gone(pod)]
    return Verdict(
        Phase.STOPPING,
        reason,
        f"waiting for {len(left)} pods to stop, {left[0]} among them" if left else "stopping",
        requeue_after=context.recheck_seconds,
    )


def _gives_back(context: Context) -> Verdict | None:
    """Give the quota back because no placement exists, then queue again when it may."""
    requeue, workload = context.status.requeue, context.workload
    if requeue is None:
        return None
    step = quota.withdraw(context, workload) if workload else None
    if step is not None:
        return Verdict(Phase.STOPPING, requeue.reason, requeue.message, **step)
    wait = parse_time(requeue.not_before) - context.now
    if wait > 0:
        message = f"{requeue.message}; quota given back, queues again at {requeue.not_before}"
        return Verdict(Phase.PENDING, requeue.reason, message, requeue_after=wait)
    return Verdict(
        Phase.PENDING,
        requeue.reason,
        requeue.message,
        updates={"requeue": None, "waiting_since": None},
        commit=True,
    )


def _obsolete(context: Context) -> Verdict | None:
    """Delete Workloads that no longer describe the job, once nothing runs on their quota.

    Their pod sets or queue are others than the job's by now, or somebody marked them as finished.
    """
    queue = context.job.queue or ""
    obsolete = [
        each
        for each in context.workloads
        if each is not context.workload or each.is_finished or each.queue != queue
    ]
    if not obsolete:
        return None
    if not context.all_gone:
        return _stopping(context, c.Reason.QUOTA_RELEASED)
    return Verdict(
        Phase.PENDING,
        c.Reason.QUOTA_RELEASED,
        f"Workload {obsolete[0].name} no longer describes the job and is replaced",
        actions=tuple(DeleteWorkload(each.name, each.uid) for each in obsolete),
        requeue_after=1.0,
    )


def _malformed(context: Context) -> Verdict | None:
    """Parts of a template that the CRD leaves open, and that kube-scheduler could not read."""
    for role in context.spec.roles:
        try:
            rank_group(role, None)
        except ValueError as error:
            message = f"spec.roles[{role.name}].template: {error}"
            event = JobEvent("Warning", c.EventReason.INVALID, message, key="template")
            return Verdict(
                Phase.PENDING,
                c.Reason.INVALID_SPEC,
                message,
                actions=quota.releases(context),
                events=(event,),
            )
    return None


def _unqueued(context: Context) -> Verdict | None:
    if context.job.queue is not None:
        return None
    message = f"set the label {c.LABEL_QUEUE} of the TrainingJob to the name of a LocalQueue"
    return Verdict(
        Phase.PENDING,
        c.Reason.QUEUE_MISSING,
        message,
        events=(JobEvent("Warning", c.EventReason.INVALID, message, key="queue"),),
    )


def _without_volumes(context: Context) -> Verdict | None:
    """Something that the ranks mount is not there, or not for all of them.

    The job is taken out of its queue until it is: it must not hold quota that it cannot use.
    """
    problem = volumes.find_problem(context)
    if problem is None:
        return None
    step = quota.withdraw(context, context.workload) if context.workload else None
    phase = Phase.PENDING if step is None else Phase.STOPPING
    return Verdict(phase, problem.reason, problem.message, **(step or {}))


def _missing(context: Context) -> Verdict | None:
    if context.workload is not None:
        return None
    message = f"queued in LocalQueue {context.job.queue}"
    return Verdict(
        Phase.QUEUED,
        c.Reason.WAITING_FOR_QUOTA,
        message,
        actions=(CreateWorkload(context.workload_name),),
        events=(JobEvent("Normal", c.EventReason.QUEUED, message, key=context.workload_name),),
    )


def _evicted(context: Context) -> Verdict | None:
    """Release what Kueue has taken back, once the pods are gone."""
    workload = _found(context)
    if not workload.is_evicted or not workload.has_admission:
        return None
    if not context.all_gone:
        return _stopping(context, c.Reason.EVICTED)
    told = f"{workload.evicted.reason}: {workload.evicted.message}" if workload.evicted else ""
    return Verdict(Phase.QUEUED, c.Reason.EVICTED, told, actions=(quota.release(workload),))


def _inactive(context: Context) -> Verdict | None:
    workload = _found(context)
    if workload.active:
        return None
    if workload.deactivated_by_us:
        return Verdict(
            Phase.QUEUED,
            c.Reason.WAITING_FOR_QUOTA,
            f"queued in LocalQueue {context.job.queue}",
            actions=(SetWorkloadActive(workload.name, True),),
        )
    why = f" ({workload.evicted.message})" if workload.evicted else ""
    return Verdict(
        Phase.PENDING,
        c.Reason.DEACTIVATED,
        f"Workload {workload.name} was deactivated{why}: set its spec.active to true, "
        "or set spec.suspend of the TrainingJob to true and back to false",
    )


def _queued(context: Context) -> Verdict | None:
    workload = _found(context)
    if workload.has_admission:
        return None
    reserved = workload.quota_reserved
    refused = reserved is not None and reserved.reason in _REFUSED
    return Verdict(
        Phase.QUEUED,
        c.Reason.INADMISSIBLE if refused else c.Reason.WAITING_FOR_QUOTA,
        (with_remedy(reserved.message) if reserved else "")
        or f"queued in LocalQueue {context.job.queue}",
        updates={"waiting_since": None},
    )


def _checked_by_others(context: Context) -> Verdict | None:
    """Place last: another check may still bring the nodes that we place on."""
    waiting = [each for each in _found(context).checks if not each.ours and each.state != "Ready"]
    if not waiting:
        return None
    first = waiting[0]
    message = f"admission check {first.name} is {first.state}: {first.message}".rstrip(": ")
    return Verdict(Phase.QUEUED, c.Reason.WAITING_FOR_CHECKS, message)


def _backing_off(context: Context) -> Verdict | None:
    restart_at = context.status.restart_at
    wait = parse_time(restart_at) - context.now if restart_at else 0.0
    if wait <= 0:
        return None
    if context.status.placement_failures >= context.policy.placement_tries:
        return _give_back(context, _why_withdrawn(context), _last_message(context))
    why = _why_withdrawn(context)
    return Verdict(
        Phase.RESTARTING,
        why if why == c.Reason.KUEUE_NOT_CONFIGURED else c.Reason.BACKING_OFF,
        f"restarts at {restart_at}: {_last_message(context)}",
        requeue_after=wait,
    )


def _place(context: Context) -> Verdict:
    """Commit a placement for the whole gang, or hold on, or give the quota back."""
    since = context.status.waiting_since
    waited = context.now - parse_time(since) if since else 0.0
    choosy = trust.patience(context) - waited
    outcome = find_place(context, use_avoided=choosy <= 0)
    if isinstance(outcome, Placed):
        return _commit(context, outcome)
    patience = elastic.patience(context)
    smaller_in = None if patience is None else patience - waited
    if smaller_in is not None and smaller_in <= 0 and not context.cluster_silence:
        smaller = elastic.find_smaller(context)
        if smaller is not None:
            return _commit(context, smaller)
    left = context.policy.hold_seconds - waited
    if left <= 0 and context.cluster_silence is not None:
        # There may be room again as soon as the nodes are heard; the quota is not the trouble.
        left = context.policy.recheck_seconds
    if left <= 0:
        return _give_back(context, outcome.reason, outcome.message)
    phase = Phase.RESTARTING if context.status.attempt else Phase.QUEUED
    return Verdict(
        phase,
        outcome.reason,
        _said(context, outcome) if since else outcome.message,
        updates={"waiting_since": since or format_micro_time(context.now)},
        requeue_after=max(
            0.1,
            min(
                context.policy.recheck_seconds,
                *(each for each in (left, choosy, smaller_in) if each is not None and each > 0),
            ),
        ),
    )


def _said(context: Context, outcome: NoPlace) -> str:
    """What the job says while it waits: as long as the reason is the same, what it said at first.

    The message counts nodes and what is free on them, which changes whenever other jobs come and
    go: a hundred that wait would each be written at each of these.
    """
    before = conditions.find(context.status.conditions, c.ConditionType.RUNNING)
    same = before is not None and before.reason == outcome.reason
    return before.message if before is not None and same else outcome.message


def _commit(context: Context, placed: Placed) -> Verdict:
    status, attempt = context.status, context.next_attempt
    nodes, roles = codec.encode(placed)
    checkpoint = status.checkpoint
    placement = Placement(
        attempt=attempt,
        nodes=nodes,
        roles=roles,
        resume_step=checkpoint.step if checkpoint else 0,
        committed_at=format_micro_time(context.now),
    )
    ranks = sum(map(len, placed.nodes_by_role.values()))
    message = f"attempt {attempt}: {ranks} ranks placed on {len(nodes)} nodes"
    told = c.EventReason.RESTARTING if status.attempts else c.EventReason.GANG_PLACED
    events = [JobEvent("Normal", told, message, key=f"a{attempt}")]
    reason, shortage = size.shortage(context.spec, placement, context.workload)
    if reason != c.Reason.WHOLE_GANG:
        events.append(JobEvent("Warning", c.EventReason.DEGRADED, shortage, key=f"a{attempt}"))
    return Verdict(
        Phase.STARTING,
        c.Reason.STARTING,
        message,
        updates={
            "attempt": attempt,
            "placement": placement,
            "restart_at": None,
            "waiting_since": None,
        },
        events=tuple(events),
        commit=True,
    )


def _give_back(context: Context, reason: str, message: str) -> Verdict:
    policy, tries = context.policy, context.status.placement_failures + 1
    wait = restart.exponential(policy.requeue_base_seconds, policy.requeue_max_seconds, tries)
    requeue = Requeue(
        reason=reason,
        message=message,
        since=format_micro_time(context.now),
        not_before=format_micro_time(context.now + wait),
    )
    return Verdict(
        Phase.STOPPING,
        reason,
        message,
        updates={
            "requeue": requeue,
            "placement_failures": tries,
            "waiting_since": None,
            "restart_at": None,
        },
        events=(
            JobEvent(
                "Warning",
                c.EventReason.QUOTA_RELEASED,
                f"gives its quota back: {message}",
                key=f"a{context.status.attempt}-{tries}",
            ),
        ),
        commit=True,
    )


def _why_withdrawn(context: Context) -> str:
    """Why a gang was withdrawn: what an administrator must mend is said until it runs."""
    record = restart.last_record(context)
    captured = record is not None and record.outcome is Outcome.KUEUE_NOT_CONFIGURED
    return c.Reason.KUEUE_NOT_CONFIGURED if captured else c.Reason.UNSCHEDULABLE


def _last_message(context: Context) -> str:
    record: AttemptRecord | None = restart.last_record(context)
    return record.message if record else ""


def _found(context: Context) -> WorkloadView:
    if context.workload is None:
        raise ValueError("the steps after _missing have a Workload")
    return context.workload
