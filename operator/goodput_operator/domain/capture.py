"""Pods that Kueue's pod integration has taken for jobs of their own.

It gates them, makes a second Workload for each, and lets them run once that has quota: then the
gang runs, on twice its quota. So such a gang is withdrawn whole at once, however well it fares.
"""

from goodput_operator.domain.context import Context

REMEDY = (
    "add TrainingJob.v1alpha1.goodput.dev to integrations.externalFrameworks in Kueue's "
    "configuration (ConfigMap kueue-manager-config, namespace kueue-system), then restart Kueue "
    "(kubectl rollout restart deployment kueue-controller-manager -n kueue-system)"
)


def find(context: Context) -> str | None:
    """What is said of a gang that was captured; None if it was not, or has long been running."""
    placement = context.placement
    if placement is None or placement.running_at is not None:
        return None
    captured = [pod.name for pod in context.live_pods.values() if pod.captured]
    if not captured:
        return None
    return (
        f"Kueue's pod integration has queued pod {captured[0]} as a job of its own, so the gang "
        f"was withdrawn: {REMEDY}; it is tried again by itself"
    )
