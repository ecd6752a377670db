"""What the next attempt waits for of the one before it, when that was stopped in good health."""

from goodput_operator.api.status import Outcome, Phase
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodView
from goodput_operator.domain.restart import last_record
from goodput_operator.domain.verdict import Verdict

STOP_SECONDS = 2.0
"""How much longer than its grace a kubelet may take to stop a pod."""


def saving(context: Context) -> Verdict | None:
    """Wait for ranks that were stopped in good health: they may be saving still.

    Begun beside them, the next attempt would miss what they save, and find their nodes taken. They
    are waited for no longer than their grace, since on an unhealthy node they may never end.
    """
    record = last_record(context)
    if record is None or record.outcome not in (Outcome.MIGRATED, Outcome.RESIZED):
        return None
    left = [
        pod
        for pod in context.stale_pods
        if pod.attempt == record.attempt and not context.gone(pod) and not _is_late(context, pod)
    ]
    if not left:
        return None
    deadlines = [pod.deletion_deadline for pod in left if pod.deletion_deadline is not None]
    wait = min(deadlines, default=context.now + context.policy.recheck_seconds) - context.now
    return Verdict(
        Phase.RESTARTING,
        record.outcome.value,
        f"attempt {record.attempt} saves and stops before the next begins: {record.message}",
        requeue_after=max(1.0, min(wait + STOP_SECONDS, context.policy.recheck_seconds)),
    )


def _is_late(context: Context, pod: PodView) -> bool:
    deadline = pod.deletion_deadline
    return pod.deleting and deadline is not None and context.now >= deadline + STOP_SECONDS
