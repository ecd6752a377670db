"""A gang that does not come to start: told after a while, and withdrawn whole."""

from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.status import Outcome, Phase
from goodput_operator.api.times import format_micro_time, parse_time
from goodput_operator.domain import restart
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import ended
from goodput_operator.domain.model import PodView
from goodput_operator.domain.placement.ledger import is_created
from goodput_operator.domain.plan import JobEvent
from goodput_operator.domain.verdict import Verdict

UNHEARD_OF = 5
"""How many bind deadlines a pod has of which kube-scheduler has said nothing at all: it is away, or
catches up, and another place would help no more."""


def bind_deadline(context: Context, pod: PodView) -> float:
    """When an unbound pod has been so for too long."""
    times = 1 if pod.unschedulable_message else UNHEARD_OF
    return pod.created_at + times * context.policy.bind_seconds


def cannot_bind(context: Context) -> Verdict | None:
    """Withdraw the whole gang if one of its pods has stayed unbound for too long.

    The nodes that kube-scheduler has refused are left out of the next placement.
    """
    late = [
        pod
        for pod in context.live_pods.values()
        if pod.node is None and context.now >= bind_deadline(context, pod)
    ]
    if not late:
        return None
    pod = next((each for each in late if each.unschedulable_message), late[0])
    told = pod.unschedulable_message or (
        f"kube-scheduler has said nothing about pod {pod.name}; see that it runs, "
        "and that the template's schedulerName is right"
    )
    message = (
        f"rank {pod.role}-{pod.rank} could not bind to node {pod.pinned_node} "
        f"within {bind_deadline(context, pod) - pod.created_at:.0f} s: {told}"
    )
    failed = {
        each.pinned_node: each.unschedulable_message
        for each in late
        if each.pinned_node and each.unschedulable_message
    }
    return withdrawn(context, message, failed)


def cannot_create(context: Context) -> Verdict | None:
    """Withdraw the whole gang if the API server keeps refusing some of its pods.

    Not if it has none, and the place is not the trouble: Kueue, which is away, would give its quota
    to nobody else, and another place would help no more.
    """
    error, waited = context.snapshot.errors.get(context.job.key), _unstarted_for(context)
    if error is None or (error.transient and not context.live_pods):
        return None
    patience = context.policy.bind_seconds
    if waited is None or waited < patience:
        return None
    message = f"not all pods could be created within {patience:.0f} s: {error.message}"
    return withdrawn(context, message, {})


def _unstarted_for(context: Context) -> float | None:
    """Seconds for which the gang could have had all of its pods; None when it has, or could not."""
    placement, workload = context.placement, context.workload
    if placement is None or is_created(placement):
        return None
    if workload is None or not workload.is_admitted or workload.admitted is None:
        return None
    since = parse_time(placement.replaced_at or placement.committed_at)
    return context.now - max(since, workload.admitted.since)


def not_started(context: Context, why: str) -> tuple[JobEvent, ...]:
    """The Event that a gang holds quota for long, and does not have all of its pods."""
    waited, patience = _unstarted_for(context), context.policy.start_seconds
    if waited is None or waited < patience:
        return ()
    message = (
        f"admitted, but not started within {patience:.0f} s: "
        f"{len(context.live_pods)} of {context.replicas} pods exist; it is tried again: {why}"
    )
    key = f"a{context.status.attempt}"
    return (JobEvent("Warning", c.EventReason.NOT_STARTED, message, key=key),)


def withdrawn(
    context: Context,
    message: str,
    failed: Mapping[str, str],
    outcome: Outcome = Outcome.UNSCHEDULABLE,
) -> Verdict:
    """The commit that gives a placement up; the nodes that failed are left out of the next ones."""
    tries = context.status.placement_failures + 1
    wait = restart.exponential(
        context.policy.requeue_base_seconds, context.policy.requeue_max_seconds, tries
    )
    updates: dict[str, Any] = {
        **ended(context, outcome, message),
        "excluded_nodes": restart.excluded(context, failed),
        "placement_failures": tries,
        "restart_at": format_micro_time(context.now + wait),
    }
    key = f"a{context.status.attempt}"
    return Verdict(
        Phase.RESTARTING,
        outcome.value,
        message,
        updates=updates,
        events=(JobEvent("Warning", outcome.value, message, key=key),),
        commit=True,
    )
