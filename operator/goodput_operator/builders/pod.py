"""A rank's pod: the role's template, made to run as this rank of this attempt on this node."""

import copy
from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.spec import Checkpoint
from goodput_operator.builders import ranks
from goodput_operator.builders.environment import rank_environment
from goodput_operator.builders.progress import ProgressTarget, progress_mount, progress_volume
from goodput_operator.domain.model import JobView, PodSetAssignment
from goodput_operator.domain.names import host_name, pod_name, service_name
from goodput_operator.domain.plan import CreatePod

__all__ = ["build_pod", "pin_to_node", "pod_name"]

CHECKPOINT_VOLUME = "goodput-checkpoint"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' own default."""

PodSpec = dict[str, Any]


def build_pod(
    job: JobView,
    action: CreatePod,
    assignment: PodSetAssignment | None,
    progress: ProgressTarget | None,
) -> dict[str, Any]:
    """The pod of one rank.

    ``assignment`` is what Kueue assigned to the role: without its node labels and tolerations a job
    admitted on one flavour would land on the nodes of another. ``progress`` is where ranks report;
    None: nowhere. Raises ValueError when the job has no readable spec or no such role.
    """
    spec = ranks.spec_of(job)
    template = ranks.role_of(spec, action.role).template
    pod_spec: PodSpec = copy.deepcopy(template.get("spec") or {})
    pod_spec["restartPolicy"] = "Never"
    pod_spec["hostname"] = host_name(job.key.name, action.attempt, action.role, action.rank)
    pod_spec["subdomain"] = service_name(job.key.name)
    if assignment is not None:
        _add_assignment(pod_spec, assignment)
    pin_to_node(pod_spec, action.node)
    _complete_containers(pod_spec, rank_environment(job, action, progress))
    if spec.checkpoint is not None:
        _add_checkpoint(pod_spec, spec.checkpoint)
    if progress is not None:
        _add_volume(pod_spec, progress_volume(), progress_mount())
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, action, template.get("metadata") or {}, assignment, progress),
        "spec": pod_spec,
    }


def pin_to_node(pod_spec: PodSpec, node: str) -> None:
    """Require a node by name, in every required term of the spec, since terms are ORed.

    An empty term matches no node, and would match this one if it were pinned; it is left alone.
    """
    affinity = pod_spec["affinity"] = pod_spec.get("affinity") or {}
    node_affinity = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = node_affinity[key] = node_affinity.get(key) or {}
    terms = required.get("nodeSelectorTerms")
    if not terms:
        required["nodeSelectorTerms"] = [{"matchFields": [_named(node)]}]
        return
    for term in terms:
        if term.get("matchExpressions") or term.get("matchFields"):
            term["matchFields"] = [*(term.get("matchFields") or ()), _named(node)]


def _named(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _metadata(
    job: JobView,
    action: CreatePod,
    template: Mapping[str, Any],
    assignment: PodSetAssignment | None,
    progress: ProgressTarget | None,
) -> dict[str, Any]:
    annotations = {SAFE_TO_EVICT: "false", **(template.get("annotations") or {})}
    labels = dict(template.get("labels") or {})
    if assignment is not None:
        annotations.update(assignment.annotations)
        labels.update(assignment.labels)
    if progress is not None:
        annotations[c.ANNOTATION_PROGRESS_CA] = progress.ca_pem
    labels.update(ranks.job_labels(job))
    labels[c.LABEL_ATTEMPT] = str(action.attempt)
    labels[c.LABEL_ROLE] = action.role
    labels[c.LABEL_RANK] = str(action.rank)
    if action.incarnation:
        labels[c.LABEL_INCARNATION] = str(action.incarnation)
    return {
        "name": pod_name(
            job.key.name, action.attempt, action.role, action.rank, action.incarnation
        ),
        "namespace": job.key.namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [ranks.owner_reference(job)],
    }


def _add_assignment(pod_spec: PodSpec, assignment: PodSetAssignment) -> None:
    if assignment.node_labels:
        selector = pod_spec.get("nodeSelector") or {}
        pod_spec["nodeSelector"] = {**selector, **assignment.node_labels}
    tolerations = list(pod_spec.get("tolerations") or ())
    tolerations += [dict(t) for t in assignment.tolerations if t not in tolerations]
    if tolerations:
        pod_spec["tolerations"] = tolerations


def _containers(pod_spec: PodSpec) -> list[dict[str, Any]]:
    """All of them: one that restores a checkpoint at first needs to know as much."""
    return [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]


def _complete_containers(pod_spec: PodSpec, environment: Mapping[str, str]) -> None:
    """Add the environment before the user's own, which wins and may refer to it by ``$(NAME)``."""
    for container in _containers(pod_spec):
        own = container.get("env") or []
        names = {variable.get("name") for variable in own}
        added = [{"name": k, "value": v} for k, v in environment.items() if k not in names]
        container["env"] = added + own
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _add_checkpoint(pod_spec: PodSpec, checkpoint: Checkpoint) -> None:
    grace = pod_spec.get("terminationGracePeriodSeconds")
    least = DEFAULT_GRACE_SECONDS if grace is None else grace
    pod_spec["terminationGracePeriodSeconds"] = max(least, checkpoint.grace_period_seconds)
    if checkpoint.volume is not None:
        claim = {"claimName": checkpoint.volume.claim_name}
        _add_volume(
            pod_spec,
            {"name": CHECKPOINT_VOLUME, "persistentVolumeClaim": claim},
            {"name": CHECKPOINT_VOLUME, "mountPath": checkpoint.volume.mount_path},
        )


def _add_volume(pod_spec: PodSpec, volume: dict[str, Any], mount: dict[str, Any]) -> None:
    """Mount a volume in every container that has nothing mounted there itself."""
    pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), volume]
    for container in _containers(pod_spec):
        mounts = container.get("volumeMounts") or []
        taken = {str(other.get("mountPath", "")).rstrip("/") for other in mounts}
        if mount["mountPath"] not in taken:
            container["volumeMounts"] = [*mounts, dict(mount)]
