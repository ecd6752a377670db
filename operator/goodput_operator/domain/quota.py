"""Taking a Workload out of its queue, and quota that is held though nothing runs on it."""

from typing import Any

from goodput_operator.api.times import parse_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import WorkloadView
from goodput_operator.domain.plan import ReleaseQuota, SetWorkloadActive

_KUEUE_REQUEUES = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueueStopped",
        "Deactivated",
        "LocalQueueStopped",
        "PodsReadyTimeout",
    }
)
"""Evictions after which Kueue sets ``Requeued`` to True when their cause is over.

After any other (a preemption, a lost node, one that somebody else has set) nobody would: a
Workload released with False then stays out of its queue for ever.
"""


def withdraw(context: Context, workload: WorkloadView) -> dict[str, Any] | None:
    """What takes a Workload out of its queue, one step at a time; None once it is out.

    Deactivate, wait for Kueue to evict it, wait for the pods to be gone, release. A release without
    an eviction would leave the Workload out of its queue for ever.
    """
    if workload.active:
        return {"actions": (SetWorkloadActive(workload.name, False),)}
    if not workload.has_admission:
        return None
    if not workload.is_evicted or not context.all_gone:
        return {"requeue_after": context.recheck_seconds}
    return {"actions": (release(workload),)}


def release(workload: WorkloadView) -> ReleaseQuota:
    """Give back what Kueue has evicted. The pods must be gone."""
    evicted = workload.evicted
    reason = evicted.reason if evicted else "Pending"
    return ReleaseQuota(
        workload.name,
        workload.resource_version,
        requeued=reason not in _KUEUE_REQUEUES,
        reason=reason,
        message=evicted.message if evicted else "",
    )


def held(context: Context) -> WorkloadView | None:
    """A Workload whose quota is held for nothing: evicted, or of a job that is over, with no pods.

    Only a write to its status frees the quota. Until that succeeds nobody else gets it.
    """
    if not context.all_gone:
        return None
    wanted = (each for each in context.workloads if each.holds_quota)
    return next((each for each in wanted if each.is_evicted or context.terminal), None)


def held_seconds(context: Context) -> float | None:
    """For how long Kueue has been waiting for the quota that is held for nothing; None: it is not.

    From the eviction, or the end of the job: when the last pod was gone, nobody has noted.
    """
    workload, over = held(context), context.status.completion_time
    if workload is None:
        return None
    if workload.is_evicted and workload.evicted is not None:
        since = workload.evicted.since
    else:
        since = parse_time(over) if over else context.now
    return max(0.0, context.now - since)


def releases(context: Context) -> tuple[ReleaseQuota, ...]:
    """What gives back the quota that is held for nothing, whatever else the job waits for."""
    workload = held(context)
    return (release(workload),) if workload is not None and workload.is_evicted else ()
