"""The live attempt: a committed placement, and what its pods and nodes are doing."""

from collections import Counter
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, Outcome, Phase, Placement
from goodput_operator.api.times import format_micro_time, format_time
from goodput_operator.domain import (
    capture,
    elastic,
    failures,
    growth,
    hang,
    interval,
    migration,
    recovery,
    replacement,
    restart,
    size,
    withdrawal,
)
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import active_now, ended, over
from goodput_operator.domain.failures import Failure
from goodput_operator.domain.model import PodView, WorkloadView
from goodput_operator.domain.placement import codec
from goodput_operator.domain.placement.ledger import is_created
from goodput_operator.domain.plan import (
    Action,
    AnswerChecks,
    CreatePod,
    EnsureService,
    JobEvent,
    SetPodsReady,
)
from goodput_operator.domain.verdict import Verdict, is_ready

PREEMPTED = "Preempted"
_LOOK_AGAIN = 5.0
"""Seconds after which a job that is held still is looked at again."""


def observe(context: Context) -> Verdict | None:
    """What becomes of the live attempt; None when there is none."""
    if context.placement is None:
        return None
    found = (
        _unreadable(context)
        or _succeeded(context)
        or _deadline(context)
        or _asked_to_stop(context)
        or _captured(context)
        or _failed(context)
        or _hung(context)
    )
    if found is not None:
        return found
    outlook = migration.look(context)
    if outlook.verdict is not None:
        return outlook.verdict
    verdict = (
        withdrawal.cannot_bind(context)
        or withdrawal.cannot_create(context)
        or _start(context)
        or _running(context)
    )
    grown = growth.grow(context, verdict) if context.status.move is None else verdict
    return outlook.told(elastic.giving_back(context, grown))


def _unreadable(context: Context) -> Verdict | None:
    """Somebody has edited the placement: no pod can be told by it any more."""
    try:
        if context.placement is not None:
            codec.decode(context.placement)
            codec.succeeded(context.placement)
            codec.incarnations(context.placement)
    except ValueError as error:
        message = f"status.placement cannot be read: {error}"
        return _stop(context, Outcome.EVICTED, c.EventReason.POD_LOST, message)
    return None


def _succeeded(context: Context) -> Verdict | None:
    completing = {role.name for role in context.completing_roles}
    needed = [rank for rank in context.ranks if rank[0] in completing]
    if not context.succeeded.issuperset(needed):
        return None
    count = Counter(role for role, _ in needed)
    if any(
        not size.least(role) <= count[role.name] <= role.replicas
        for role in context.completing_roles
    ):
        return None  # The roles have been changed since: what has succeeded is another gang.
    roles = ", ".join(role.name for role in context.completing_roles)
    message = f"all {len(needed)} ranks of role {roles} have succeeded"
    updates = ended(context, Outcome.SUCCEEDED, message)
    return over(context, Phase.COMPLETE, c.Reason.COMPLETED, message, updates)


def _deadline(context: Context) -> Verdict | None:
    limit = context.spec.active_deadline_seconds
    if (
        limit is None
        or context.status.active_seconds + active_now(context.placement, context.now) < limit
    ):
        return None
    message = f"spec.activeDeadlineSeconds: the job has been running for {limit} s"
    updates = ended(context, Outcome.DEADLINE_EXCEEDED, message)
    return over(context, Phase.FAILED, c.Reason.DEADLINE_EXCEEDED, message, updates)


def _asked_to_stop(context: Context) -> Verdict | None:
    """End a healthy attempt because the user or Kueue says so. Never counted against the user."""
    workload = context.workload
    if context.spec.suspend:
        return _stop(context, Outcome.SUSPENDED, c.EventReason.SUSPENDED, "spec.suspend is true")
    if workload is None:
        return _stop(context, Outcome.EVICTED, c.EventReason.EVICTED, _without_workload(context))
    if growth.is_handing_over(context, workload):
        return None
    if workload.is_evicted or workload.is_finished or not workload.has_admission:
        reason, message = _eviction(workload)
        preempted = reason == PREEMPTED
        return _stop(
            context,
            Outcome.PREEMPTED if preempted else Outcome.EVICTED,
            c.EventReason.EVICTED,
            f"{reason}: {message}",
            Cause.PREEMPTION if preempted else None,
        )
    return None


def _without_workload(context: Context) -> str:
    if context.workloads:
        name = context.workloads[0].name
        return f"the job's pods are to be others: Workload {name} no longer describes them"
    return f"Workload {context.status.workload or context.workload_name} was deleted"


def _eviction(workload: WorkloadView) -> tuple[str, str]:
    if workload.is_evicted and workload.evicted is not None:
        return workload.evicted.reason, workload.evicted.message
    if workload.is_finished:
        return "Finished", f"Workload {workload.name} was marked as finished"
    return "NoReservation", f"Workload {workload.name} has lost its admission"


def _stop(
    context: Context, outcome: Outcome, event: str, message: str, cause: Cause | None = None
) -> Verdict:
    attempt = context.status.attempt
    return Verdict(
        Phase.STOPPING,
        outcome.value,
        message,
        updates={**ended(context, outcome, message, cause), "restart_at": None},
        events=(JobEvent("Normal", event, message, key=f"a{attempt}"),),
        commit=True,
    )


def _captured(context: Context) -> Verdict | None:
    """Withdraw a gang that Kueue would count a second time."""
    message = capture.find(context)
    if message is None:
        return None
    return withdrawal.withdrawn(context, message, {}, Outcome.KUEUE_NOT_CONFIGURED)


def _failed(context: Context) -> Verdict | None:
    failure = failures.find_failure(context)
    if failure is None:
        return None
    return (
        _held(context, failure)
        or replacement.replace_lost(context, failure)
        or restart.after_failure(context, failure)
    )


def _hung(context: Context) -> Verdict | None:
    failure = hang.find_hang(context)
    return hang.told(restart.after_failure(context, failure)) if failure is not None else None


def _held(context: Context, failure: Failure) -> Verdict | None:
    """Wait, if the nodes that would be lost are only silent, and may not be the ones that are sick.

    A node that was deleted, or whose kubelet says that it is not ready, is never waited for.
    """
    lost = [context.snapshot.nodes.get(name) for name in failure.lost_nodes]
    silent = [node for node in lost if node is not None and node.unheard]
    if not silent or len(silent) < len(lost):
        return None
    phase = context.status.phase or Phase.STARTING
    cluster, now = context.cluster_silence, context.now
    if cluster is not None:
        message = (
            f"{cluster.silent} of {cluster.nodes} nodes fell silent at once, so the control plane "
            f"is taken to be sick, not the nodes: nothing is restarted until they are heard again, "
            f"at the latest until {format_time(cluster.until)}; {failure.message}"
        )
        wait = min(cluster.until - now, _LOOK_AGAIN)
        return Verdict(phase, c.Reason.CLUSTER_SILENT, message, requeue_after=max(0.1, wait))
    began = [node.settling_since for node in silent if node.settling_since is not None]
    wait = min(began, default=0.0) + context.policy.settle_seconds - now
    if wait <= 0:
        return None
    message = f"{failure.message}; waiting for a moment whether other nodes are lost with it"
    return Verdict(phase, c.Reason.RANKS_NOT_READY, message, requeue_after=wait)


def _start(context: Context) -> Verdict | None:
    """Create the pods of the committed placement, once Kueue has admitted the job."""
    placement, workload = context.placement, context.workload
    if placement is None or is_created(placement) or workload is None:
        return None
    if placement.replacing:
        return replacement.create(context, placement)
    if not workload.is_admitted:
        return _answer(context, workload)
    actions: list[Action] = [EnsureService()]
    actions += [
        CreatePod(placement.attempt, role, rank, node)
        for (role, rank), node in context.ranks.items()
        if (role, rank) not in context.live_pods
    ]
    nodes = len(placement.nodes)
    message = f"attempt {placement.attempt}: {context.replicas} ranks on {nodes} nodes"
    created = placement.model_copy(update={"created_at": format_micro_time(context.now)})
    return Verdict(
        Phase.STARTING,
        c.Reason.STARTING,
        message,
        actions=tuple(actions),
        updates={
            "placement": created,
            "restart_at": None,
            "start_time": context.status.start_time or format_time(context.now),
        },
        events=(
            *_admitted(workload),
            JobEvent("Normal", c.EventReason.GANG_STARTED, message, key=f"a{placement.attempt}"),
        ),
        requeue_after=context.policy.bind_seconds,
    )


def _admitted(workload: WorkloadView) -> tuple[JobEvent, ...]:
    """The Event of this admission; several attempts can run within one."""
    if workload.admitted is None:
        return ()
    message = f"Workload {workload.name} is admitted by Kueue"
    since = format_time(workload.admitted.since)
    return (JobEvent("Normal", c.EventReason.ADMITTED, message, key=since),)


def _answer(context: Context, workload: WorkloadView) -> Verdict:
    """Tell Kueue that the place is found; the admission follows."""
    unanswered = workload.unanswered_checks
    placement = context.placement
    nodes = len(placement.nodes) if placement else 0
    message = f"placed on {nodes} nodes; waiting for Kueue to admit Workload {workload.name}"
    actions: tuple[Action, ...] = ()
    if unanswered:
        told = f"placed on {nodes} nodes"
        actions = (
            AnswerChecks(workload.name, workload.resource_version, unanswered, "Ready", told),
        )
    return Verdict(
        Phase.QUEUED,
        c.Reason.WAITING_FOR_CHECKS,
        message,
        actions=actions,
        requeue_after=context.policy.recheck_seconds,
    )


def _running(context: Context) -> Verdict:
    placement, pods = context.placement, context.live_pods
    if placement is None:
        raise ValueError("there is no live attempt")
    waiting = [pod for pod in pods.values() if not is_ready(pod)]
    if waiting:
        return Verdict(
            Phase.RUNNING if placement.running_at else Phase.STARTING,
            c.Reason.RANKS_NOT_READY,
            _why_not_ready(context, waiting),
            actions=_pods_ready(context, False),
            updates=_noted(context, placement),
            requeue_after=_until_next_deadline(context),
        )
    return Verdict(
        Phase.RUNNING,
        c.Reason.ALL_RANKS_READY,
        f"attempt {placement.attempt}: all {context.replicas} ranks are ready",
        actions=_pods_ready(context, True),
        updates={
            "placement_failures": 0,
            "excluded_nodes": (),
            "waiting_since": None,
            **_noted(context, placement),
            **interval.refreshed(context),
            **recovery.refreshed(context),
        },
        events=_resumed(context),
        conditions=hang.progressing(context),
        requeue_after=_until_next_deadline(context),
    )


def _noted(context: Context, placement: Placement) -> dict[str, Any]:
    """The placement with what its pods have come to: bound, all ready at once, succeeded."""
    now, pods = format_micro_time(context.now), context.live_pods.values()
    times: dict[str, str] = {}
    if placement.bound_at is None and all(pod.node is not None for pod in pods):
        times["bound_at"] = now
    if placement.running_at is None and all(is_ready(pod) for pod in pods):
        times["running_at"] = now
    noted = codec.with_succeeded(placement, context.succeeded)
    return {"placement": noted.model_copy(update=times)}


def _why_not_ready(context: Context, waiting: list[PodView]) -> str:
    first = waiting[0]
    if first.node is None:
        why = first.unschedulable_message or "not yet bound"
    else:
        why = first.waiting or "not ready"
    return (
        f"{len(waiting)} of {context.replicas} ranks are not ready: "
        f"rank {first.role}-{first.rank} on node {first.node or first.pinned_node}: {why}"
    )


def _pods_ready(context: Context, ready: bool) -> tuple[Action, ...]:
    workload = context.workload
    if workload is None or not workload.has_admission:
        return ()
    before = workload.pods_ready
    if before is not None and before.status == ready:
        return ()
    told = "all ranks are ready" if ready else "not all ranks are ready"
    return (SetPodsReady(workload.name, workload.resource_version, ready, told),)


def _resumed(context: Context) -> tuple[JobEvent, ...]:
    """The Event that a later attempt is training again, once it has reported a step."""
    progress, placement = context.progress, context.placement
    if progress is None or placement is None or not context.status.attempts:
        return ()
    if progress.first_step_at is None:
        return ()
    resumed_from = progress.resumed_from_step
    start = "from the beginning" if resumed_from is None else f"from step {resumed_from}"
    return (
        JobEvent(
            "Normal",
            c.EventReason.RESUMED,
            f"attempt {placement.attempt} trains again, {start}",
            key=f"a{placement.attempt}",
        ),
    )


def _until_next_deadline(context: Context) -> float | None:
    """Seconds until time alone changes the verdict: a rank's bind deadline, or the job's own."""
    now, waits = context.now, []
    unbound = [pod for pod in context.live_pods.values() if pod.node is None]
    if unbound:
        waits.append(min(withdrawal.bind_deadline(context, pod) for pod in unbound) - now)
    left = hang.seconds_left(context)
    if left is not None:
        waits.append(left)
    limit = context.spec.active_deadline_seconds
    if limit is not None:
        waits.append(
            limit - context.status.active_seconds - active_now(context.placement, context.now)
        )
    return max(0.1, min(waits)) if waits else None
