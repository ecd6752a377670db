"""What the owner of a Workload writes to its status, in place of Kueue's own job framework.

Each function takes the Workload as the API has it and returns a changed copy for a PUT to its
status subresource, which its ``resourceVersion`` guards. Reasons and messages are those of Kueue
0.19 (``pkg/workload`` and ``pkg/controller/jobframework/reconciler.go``), since Kueue acts on them.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from goodput_operator.api.times import format_time, parse_time
from goodput_operator.domain.plan import (
    AnswerChecks,
    FinishWorkload,
    ReclaimPods,
    ReleaseQuota,
    SetPodsReady,
)

MAX_MESSAGE = 32_768
"""Kueue's schema refuses longer messages."""

Raw = Mapping[str, Any]
Workload = dict[str, Any]


class _Condition(NamedTuple):
    type: str
    status: bool
    reason: str
    message: str


def answer_checks(raw: Raw, action: AnswerChecks, now: float) -> Workload:
    """Set our entries of ``status.admissionChecks``; one that Kueue has not made yet is left out.

    A delay is kept only with ``Retry``: with it, Kueue waits that long before it even evicts.
    """
    workload = _copy(raw)
    for entry in workload["status"].get("admissionChecks") or ():
        if entry.get("name") not in action.checks:
            continue
        if entry.get("state") != action.state or not entry.get("lastTransitionTime"):
            entry["lastTransitionTime"] = format_time(now)
        entry["state"] = action.state
        entry["message"] = _cut(action.message)
        entry.pop("requeueAfterSeconds", None)
        if action.state == "Retry" and action.requeue_after_seconds is not None:
            entry["requeueAfterSeconds"] = action.requeue_after_seconds
    return workload


def set_pods_ready(raw: Raw, action: SetPodsReady, now: float) -> Workload:
    """Set ``PodsReady``, with the reason by which Kueue tells a start from a recovery."""
    workload = _copy(raw)
    before = _find(workload, "PodsReady") or {}
    recovering = before.get("reason") in ("WaitForRecovery", "Recovered")
    if action.ready:
        reason = "Recovered" if recovering else "Started"
    else:
        admitted = _is_true(_find(workload, "Admitted"))
        was_ready = _is_true(before)
        reason = "WaitForRecovery" if admitted and (was_ready or recovering) else "WaitForStart"
    _set(workload, _Condition("PodsReady", action.ready, reason, action.message), now)
    return workload


def reclaim_pods(raw: Raw, action: ReclaimPods, now: float) -> Workload:
    """Set ``status.reclaimablePods``: Kueue gives their quota to others at once.

    Kueue counts them from the pod set's own count, not from what it has admitted of it, and refuses
    fewer than there were while the quota is reserved.
    """
    workload = _copy(raw)
    counts = {each["name"]: each["count"] for each in workload["status"].get("reclaimablePods", ())}
    for name, count in action.counts:
        counts[name] = max(count, counts.get(name, 0))
    workload["status"]["reclaimablePods"] = [
        {"name": name, "count": count} for name, count in counts.items()
    ]
    return workload


def release_quota(raw: Raw, action: ReleaseQuota, now: float) -> Workload:
    """Clear the admission of an evicted Workload, whose pods are gone; Kueue queues it again.

    Raises ValueError when Kueue has not evicted it: it would never be queued again then.
    """
    workload = _copy(raw)
    if not _is_true(_find(workload, "Evicted")):
        name = workload.get("metadata", {}).get("name")
        raise ValueError(f"Workload {name} is not evicted; set spec.active to false and wait first")
    workload["status"].pop("admission", None)
    workload["status"].pop("reclaimablePods", None)  # It queues for the whole gang again.
    _count_admitted_time(workload, now)
    _set(workload, _Condition("Requeued", action.requeued, action.reason, action.message), now)
    _set(workload, _Condition("QuotaReserved", False, "Pending", action.message), now)
    _set(
        workload,
        _Condition("Admitted", False, "NoReservation", "The workload has no reservation"),
        now,
    )
    if _find(workload, "PodsReady") is not None:
        # Its pods are gone, and the next ones start: they do not recover.
        gone = _Condition("PodsReady", False, "WaitForStart", "the pods have been stopped")
        _set(workload, gone, now)
    return workload


def finish(raw: Raw, action: FinishWorkload, now: float) -> Workload:
    """Set ``Finished``, which frees the quota at once. What is finished stays as it is."""
    workload = _copy(raw)
    if not _is_true(_find(workload, "Finished")):
        reason = "Succeeded" if action.succeeded else "Failed"
        _set(workload, _Condition("Finished", True, reason, action.message), now)
    return workload


def _copy(raw: Raw) -> Workload:
    """A copy whose status may be changed; the rest is shared."""
    return {**raw, "status": copy.deepcopy(dict(raw.get("status") or {}))}


def _find(workload: Workload, kind: str) -> dict[str, Any] | None:
    for condition in workload["status"].get("conditions") or ():
        if condition.get("type") == kind:
            found: dict[str, Any] = condition
            return found
    return None


def _is_true(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _set(workload: Workload, condition: _Condition, now: float) -> None:
    """As ``meta.SetStatusCondition``: the time changes only when the status does."""
    wanted = {
        "type": condition.type,
        "status": "True" if condition.status else "False",
        "reason": condition.reason,
        "message": _cut(condition.message),
        "observedGeneration": workload.get("metadata", {}).get("generation", 0),
        "lastTransitionTime": format_time(now),
    }
    existing = _find(workload, condition.type)
    if existing is None:
        conditions = workload["status"].get("conditions") or []
        workload["status"]["conditions"] = [*conditions, wanted]
        return
    if existing.get("status") == wanted["status"] and existing.get("lastTransitionTime"):
        wanted["lastTransitionTime"] = existing["lastTransitionTime"]
    existing.clear()
    existing.update(wanted)


def _count_admitted_time(workload: Workload, now: float) -> None:
    """Add the time since its admission, by which Kueue enforces a maximum execution time."""
    admitted = _find(workload, "Admitted")
    if admitted is None or not _is_true(admitted):
        return
    seconds = int(now - parse_time(admitted["lastTransitionTime"]))
    past = workload["status"].get("accumulatedPastExecutionTimeSeconds") or 0
    workload["status"]["accumulatedPastExecutionTimeSeconds"] = past + max(0, seconds)


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 4] + " ..."
