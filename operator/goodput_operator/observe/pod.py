"""Pods: those of TrainingJobs, and what the others take from their nodes."""

from collections.abc import Iterator, Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.domain.model import ContainerExit, PodCondition, PodView
from goodput_operator.domain.resources import MILLI, PODS, Resources, pod_requests
from goodput_operator.observe import raw as r

KUEUE_MANAGED_LABEL = f"{c.KUEUE_GROUP}/managed"
_STARTING = ("ContainerCreating", "PodInitializing")
_TERMINAL = ("Succeeded", "Failed")
_USUAL_CONDITIONS = frozenset(
    {
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
    }
)
"""On every pod, and of no use to tell a failure by: they would only take memory."""


def parse_pod(raw: Mapping[str, Any]) -> PodView | None:
    """View of a TrainingJob's pod, told by its labels and its controller; None for any other.

    Labels alone anybody can write; the controller of a pod only who may create it for that job.
    """
    labels = r.strings(raw, "metadata", "labels")
    job_uid = labels.get(c.LABEL_JOB_UID)
    if job_uid != r.text(r.controller(raw), "uid"):
        return None
    attempt, rank = _number(labels.get(c.LABEL_ATTEMPT)), _number(labels.get(c.LABEL_RANK))
    if not job_uid or attempt is None or rank is None:
        return None
    conditions = r.conditions(raw)
    return PodView(
        name=r.text(raw, "metadata", "name"),
        namespace=r.text(raw, "metadata", "namespace"),
        uid=r.text(raw, "metadata", "uid"),
        resource_version=r.text(raw, "metadata", "resourceVersion"),
        job=labels.get(c.LABEL_JOB, ""),
        job_uid=job_uid,
        attempt=attempt,
        role=labels.get(c.LABEL_ROLE, ""),
        rank=rank,
        created_at=r.time(raw, "metadata", "creationTimestamp") or 0.0,
        deleting=bool(r.text(raw, "metadata", "deletionTimestamp")),
        deletion_deadline=r.time(raw, "metadata", "deletionTimestamp"),
        phase=r.text(raw, "status", "phase") or "Pending",
        ready=r.text(conditions.get("Ready"), "status") == "True",
        node=r.text(raw, "spec", "nodeName") or None,
        pinned_node=_pinned_node(raw),
        requests=_requests(raw),
        status_reason=r.text(raw, "status", "reason"),
        status_message=r.text(raw, "status", "message"),
        disruption=_disruption(conditions.get("DisruptionTarget")),
        unschedulable_message=_unschedulable(conditions.get("PodScheduled")),
        waiting=_waiting(raw),
        exits=tuple(_exits(raw)),
        captured=_is_captured(raw, labels),
        incarnation=_number(labels.get(c.LABEL_INCARNATION)) or 0,
        conditions=tuple(
            PodCondition(type_, r.text(each, "status"), r.text(each, "reason"))
            for type_, each in conditions.items()
            if type_ not in _USUAL_CONDITIONS
        ),
    )


def usage_of(raw: Mapping[str, Any]) -> tuple[str, Resources] | None:
    """Node and effective requests of a pod that is no TrainingJob's.

    None when it takes nothing from a node: it is ours, not bound, or over.
    """
    node = r.text(raw, "spec", "nodeName")
    if not node or r.text(raw, "status", "phase") in _TERMINAL or parse_pod(raw) is not None:
        return None
    return node, _requests(raw)


def _number(label: str | None) -> int | None:
    return int(label) if label and label.isascii() and label.isdigit() else None


def _requests(raw: Mapping[str, Any]) -> Resources:
    """Effective requests; of a spec that cannot be read, which no API server lets in, one pod."""
    try:
        return pod_requests(r.mapping(raw, "spec"))
    except (ValueError, TypeError, AttributeError):
        return Resources({PODS: MILLI})


def _pinned_node(raw: Mapping[str, Any]) -> str | None:
    required = r.mapping(
        raw, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    pinned = None
    for term in r.mappings(required, "nodeSelectorTerms"):
        for field in r.mappings(term, "matchFields"):
            values = field.get("values")
            if r.text(field, "key") == "metadata.name" and isinstance(values, list) and values:
                pinned = str(values[0])  # Ours is appended, after any that the template had.
    return pinned


def _disruption(condition: Mapping[str, Any] | None) -> str | None:
    if r.text(condition, "status") != "True":
        return None
    return r.text(condition, "reason") or "DisruptionTarget"


def _unschedulable(condition: Mapping[str, Any] | None) -> str | None:
    if r.text(condition, "status") != "False":
        return None
    return r.text(condition, "message") or r.text(condition, "reason") or "not scheduled"


def _statuses(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from r.mappings(raw, "status", "initContainerStatuses")
    yield from r.mappings(raw, "status", "containerStatuses")


def _waiting(raw: Mapping[str, Any]) -> str | None:
    """Why the first container waits that does not merely start."""
    for status in _statuses(raw):
        waiting = r.mapping(status, "state", "waiting")
        reason = r.text(waiting, "reason")
        if reason and reason not in _STARTING:
            message = r.text(waiting, "message")
            return f"{reason}: {message}" if message else reason
    return None


def _exits(raw: Mapping[str, Any]) -> Iterator[ContainerExit]:
    """Containers that terminated; of the init containers, which all should, those that failed.

    A sidecar (an init container that is restarted always) is stopped once the others are done, and
    how it ends says nothing about the rank.
    """
    sidecars = {
        r.text(container, "name")
        for container in r.mappings(raw, "spec", "initContainers")
        if r.text(container, "restartPolicy") == "Always"
    }
    for status in r.mappings(raw, "status", "containerStatuses"):
        terminated = r.mapping(status, "state", "terminated")
        if terminated:
            yield _exit(status, terminated)
    for status in r.mappings(raw, "status", "initContainerStatuses"):
        terminated = r.mapping(status, "state", "terminated")
        if r.text(status, "name") in sidecars:
            continue
        if terminated and r.integer(terminated, "exitCode"):
            yield _exit(status, terminated)


def _exit(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> ContainerExit:
    return ContainerExit(
        container=r.text(status, "name"),
        exit_code=r.integer(terminated, "exitCode") or 0,
        reason=r.text(terminated, "reason"),
        message=r.text(terminated, "message"),
        finished_at=r.time(terminated, "finishedAt"),
    )


def _is_captured(raw: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Kueue's pod integration gates such pods, and labels them for good.

    A queue label alone says nothing: the job's own template may bring it.
    """
    if KUEUE_MANAGED_LABEL in labels:
        return True
    return any(
        r.text(gate, "name") == c.KUEUE_ADMISSION_GATE
        for gate in r.mappings(raw, "spec", "schedulingGates")
    )
