"""The Kueue Workload of a job: what it asks of its queue."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from goodput_operator import constants as c
from goodput_operator.api.spec import Role
from goodput_operator.builders import ranks
from goodput_operator.domain.model import JobView
from goodput_operator.domain.names import workload_name

__all__ = ["PriorityClass", "activation_patch", "build_workload", "priority_class", "workload_name"]

SLICE_ANNOTATION = f"{c.KUEUE_GROUP}/workload-slice-replacement-for"
"""Kueue's scheduler reads it on the new Workload alone, whose pod sets may have a ``minCount``. Its
annotation ``elastic-job`` may not be beside that, and only its own job framework needs it."""
TOPOLOGY_ANNOTATION_PREFIX = f"{c.KUEUE_GROUP}/podset-"

_POD_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "schedulerName",
    "resources",
    "resourceClaims",
)
"""What a quota or a flavour can depend on, besides the containers' resources."""


class PriorityClass(NamedTuple):
    """The class that gives a job its priority."""

    group: str
    kind: str
    name: str


def priority_class(job: JobView) -> PriorityClass | None:
    """Whose ``value`` is the Workload's priority, chosen as Kueue's job framework does.

    That is the WorkloadPriorityClass of the job's label, else the first PriorityClass that a role's
    template names.
    """
    if job.priority_class:
        return PriorityClass(c.KUEUE_GROUP, "WorkloadPriorityClass", job.priority_class)
    for role in ranks.spec_of(job).roles:
        name = _pod_spec(role).get("priorityClassName")
        if name:
            return PriorityClass("scheduling.k8s.io", "PriorityClass", str(name))
    return None


def build_workload(
    job: JobView,
    name: str,
    priority: int | None = None,
    replaces: str | None = None,
    least: int | None = None,
) -> dict[str, Any]:
    """The Workload, under the name that the plan gives.

    One that ``replaces`` another takes its quota over when it is admitted, with more than ``least``
    ranks of the role that may be smaller.

    ``priority`` is the value of ``priority_class(job)``: nobody looks it up for us, and Kueue
    refuses a class without it. Raises ValueError when it is missing though the job has a class.
    """
    pod_sets = [_pod_set(role, least) for role in ranks.spec_of(job).roles]
    spec: dict[str, Any] = {"podSets": pod_sets, "active": True}
    if job.queue:
        spec["queueName"] = job.queue
    named = priority_class(job)
    if named is not None:
        if priority is None:
            raise ValueError(f"the value of {named.kind} {named.name} is needed for its priority")
        spec["priorityClassRef"] = named._asdict()
    if priority is not None:
        spec["priority"] = priority
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": job.key.namespace,
        "labels": ranks.job_labels(job),
        "ownerReferences": [ranks.owner_reference(job)],
    }
    if replaces is not None:
        metadata["annotations"] = {SLICE_ANNOTATION: f"{job.key.namespace}/{replaces}"}
    return {
        "apiVersion": c.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": metadata,
        "spec": spec,
    }


def activation_patch(active: bool) -> dict[str, Any]:
    """Merge patch that sets ``spec.active`` and, in the same write, says who unset it.

    What somebody else has deactivated, Kueue or an administrator, is not ours to activate.
    """
    mark = None if active else "true"
    return {
        "metadata": {"annotations": {c.ANNOTATION_DEACTIVATED: mark}},
        "spec": {"active": active},
    }


def _pod_set(role: Role, least: int | None) -> dict[str, Any]:
    spec = _pod_spec(role)
    reduced = {field: copy.deepcopy(spec[field]) for field in _POD_FIELDS if spec.get(field)}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            reduced[kind] = _reduced_containers(spec[kind])
    reduced["restartPolicy"] = "Never"
    template: dict[str, Any] = {"spec": reduced}
    pod_set: dict[str, Any] = {"name": role.name, "count": role.replicas, "template": template}
    if role.min_replicas is not None:
        pod_set["minCount"] = role.min_replicas if least is None else least
    annotations = _topology_annotations(role)
    if annotations:
        template["metadata"] = {"annotations": annotations}
        request = _topology_request(annotations)
        if request:
            pod_set["topologyRequest"] = request
    return pod_set


def _pod_spec(role: Role) -> Mapping[str, Any]:
    return role.template.get("spec") or {}


def _reduced_containers(containers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Names and resources; ``restartPolicy`` too, which makes an init container a sidecar."""
    fields = ("name", "resources", "restartPolicy")
    return [
        {field: copy.deepcopy(container[field]) for field in fields if container.get(field)}
        for container in containers
    ]


def _topology_annotations(role: Role) -> dict[str, str]:
    annotations = (role.template.get("metadata") or {}).get("annotations") or {}
    return {k: v for k, v in annotations.items() if k.startswith(TOPOLOGY_ANNOTATION_PREFIX)}


def _topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """As Kueue's ``NewPodSetTopologyRequest`` makes it of the template's annotations.

    Annotations with values that make no request are left to Kueue's own webhook to refuse.
    """
    values = {k.removeprefix(TOPOLOGY_ANNOTATION_PREFIX): v for k, v in annotations.items()}
    request: dict[str, Any] = {}
    if "required-topology" in values:
        request["required"] = values["required-topology"]
    elif "preferred-topology" in values:
        request["preferred"] = values["preferred-topology"]
    elif values.get("unconstrained-topology") in ("true", "false"):
        request["unconstrained"] = values["unconstrained-topology"] == "true"
    size = values.get("slice-size", "")
    if "slice-required-topology" in values and size.isdecimal():
        request["podSetSliceRequiredTopology"] = values["slice-required-topology"]
        request["podSetSliceSize"] = int(size)
    if "group-name" in values and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = values["group-name"]
    if request:
        request["podIndexLabel"] = c.LABEL_RANK
    return request
