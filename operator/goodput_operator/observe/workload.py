"""Kueue's Workloads, with what they were assigned.

Kueue's job framework adds to the pods of its own kinds what a Workload's flavours and admission
checks ask for (``pkg/podset`` there); for ours nobody does, so it is worked out here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from goodput_operator import constants as c
from goodput_operator.domain.model import (
    CheckState,
    PodSetAssignment,
    TopologyDomain,
    WorkloadCondition,
    WorkloadView,
)
from goodput_operator.observe import raw as r
from goodput_operator.observe.flavor import FlavorView
from goodput_operator.observe.topology import parse_topology

WORKLOAD_ANNOTATION = f"{c.KUEUE_GROUP}/workload"
POD_SET_LABEL = f"{c.KUEUE_GROUP}/podset"
TOPOLOGY_ANNOTATION_PREFIX = f"{c.KUEUE_GROUP}/podset-"
UNCONSTRAINED_ANNOTATION = f"{TOPOLOGY_ANNOTATION_PREFIX}unconstrained-topology"

_Part = Literal["nodeSelector", "labels", "annotations"]


def parse_workload(
    raw: Mapping[str, Any], flavors: Mapping[str, FlavorView], our_checks: frozenset[str]
) -> WorkloadView:
    """View of a Workload.

    ``flavors`` are the ResourceFlavors by name; an assignment to one that is not among them has a
    conflict, since its nodes are not known. ``our_checks`` are the AdmissionChecks that we answer.
    """
    conditions = r.conditions(raw)
    return WorkloadView(
        name=r.text(raw, "metadata", "name"),
        namespace=r.text(raw, "metadata", "namespace"),
        uid=r.text(raw, "metadata", "uid"),
        resource_version=r.text(raw, "metadata", "resourceVersion"),
        owner_uid=r.text(r.controller(raw), "uid"),
        queue=r.text(raw, "spec", "queueName"),
        active=r.truth(raw, "spec", "active", default=True),
        deleting=bool(r.text(raw, "metadata", "deletionTimestamp")),
        created_at=r.time(raw, "metadata", "creationTimestamp") or 0.0,
        quota_reserved=_condition(conditions.get("QuotaReserved")),
        admitted=_condition(conditions.get("Admitted")),
        evicted=_condition(conditions.get("Evicted")),
        finished=_condition(conditions.get("Finished")),
        pods_ready=_condition(conditions.get("PodsReady")),
        requeued=_condition(conditions.get("Requeued")),
        has_admission=bool(r.mapping(raw, "status", "admission")),
        checks=tuple(
            CheckState(
                name=r.text(check, "name"),
                state=r.text(check, "state") or "Pending",
                message=r.text(check, "message"),
                ours=r.text(check, "name") in our_checks,
            )
            for check in r.mappings(raw, "status", "admissionChecks")
        ),
        assignments=tuple(_assignments(raw, flavors)),
        reclaimable={
            r.text(each, "name"): r.integer(each, "count") or 0
            for each in r.mappings(raw, "status", "reclaimablePods")
        },
        unhealthy_nodes=tuple(
            r.text(node, "name") for node in r.mappings(raw, "status", "unhealthyNodes")
        ),
        deactivated_by_us=bool(r.text(raw, "metadata", "annotations", c.ANNOTATION_DEACTIVATED)),
    )


def _condition(raw: Mapping[str, Any] | None) -> WorkloadCondition | None:
    if raw is None:
        return None
    return WorkloadCondition(
        status=r.text(raw, "status") == "True",
        reason=r.text(raw, "reason"),
        message=r.text(raw, "message"),
        since=r.time(raw, "lastTransitionTime") or 0.0,
    )


def _assignments(
    raw: Mapping[str, Any], flavors: Mapping[str, FlavorView]
) -> Iterator[PodSetAssignment]:
    pod_sets = {r.text(item, "name"): item for item in r.mappings(raw, "spec", "podSets")}
    for assigned in r.mappings(raw, "status", "admission", "podSetAssignments"):
        name = r.text(assigned, "name")
        pod_set = pod_sets.get(name, {})
        merged = _Merge(f"role {name}", r.strings(pod_set, "template", "spec", "nodeSelector"))
        for flavor in dict.fromkeys(r.strings(assigned, "flavors").values()):
            merged.add_flavor(flavor, flavors.get(flavor))
        topology: tuple[TopologyDomain, ...] = ()
        if r.mapping(assigned, "topologyAssignment"):
            topology = merged.read_topology(r.mapping(assigned, "topologyAssignment"))
            merged.parts["annotations"].update(_topology_annotations(raw, pod_set))
            merged.parts["labels"][POD_SET_LABEL] = name
        for check in r.mappings(raw, "status", "admissionChecks"):
            for update in r.mappings(check, "podSetUpdates"):
                if r.text(update, "name") == name:
                    merged.add_update(r.text(check, "name"), update)
        count = r.integer(assigned, "count")
        if count is None:
            count = r.integer(pod_set, "count") or 0
        yield PodSetAssignment(
            name=name,
            count=count,
            node_labels=merged.parts["nodeSelector"],
            tolerations=tuple(merged.tolerations),
            labels=merged.parts["labels"],
            annotations=merged.parts["annotations"],
            conflict=merged.conflict,
            topology=topology,
        )


def _topology_annotations(raw: Mapping[str, Any], pod_set: Mapping[str, Any]) -> Mapping[str, str]:
    """By these Kueue tells that a pod belongs to a topology assignment, and counts it once."""
    own = r.strings(pod_set, "template", "metadata", "annotations")
    topology = {k: v for k, v in own.items() if k.startswith(TOPOLOGY_ANNOTATION_PREFIX)}
    if not topology:
        topology[UNCONSTRAINED_ANNOTATION] = "true"
    return {**topology, WORKLOAD_ANNOTATION: r.text(raw, "metadata", "name")}


class _Merge:
    """What several sources want added to the pods of one pod set; the first conflict is named."""

    def __init__(self, pod_set: str, template_selector: Mapping[str, str]) -> None:
        self._pod_set = pod_set
        self._template_selector = template_selector
        self._source: dict[tuple[_Part, str], str] = {}
        self.parts: dict[_Part, dict[str, str]] = {part: {} for part in get_args(_Part)}
        self.tolerations: list[Mapping[str, Any]] = []
        self.conflict: str | None = None

    def add_flavor(self, name: str, flavor: FlavorView | None) -> None:
        if flavor is None:
            self._say(f"ResourceFlavor {name} does not exist, so its nodes are not known")
            return
        self._add("nodeSelector", flavor.node_labels, f"ResourceFlavor {name}")
        self._add_tolerations(flavor.tolerations)

    def add_update(self, check: str, update: Mapping[str, Any]) -> None:
        for part in self.parts:
            self._add(part, r.strings(update, part), f"AdmissionCheck {check}")
        self._add_tolerations(r.mappings(update, "tolerations"))

    def read_topology(self, raw: Mapping[str, Any]) -> tuple[TopologyDomain, ...]:
        try:
            return parse_topology(raw)
        except ValueError as error:
            self._say(f"topologyAssignment cannot be read ({error})")
            return ()

    def _add(self, part: _Part, wanted: Mapping[str, str], source: str) -> None:
        for key, value in wanted.items():
            there = self.parts[part].get(key)
            other = self._source.get((part, key), "the role's template")
            if there is None and part == "nodeSelector":
                there = self._template_selector.get(key)
            if there is not None and there != value:
                self._say(f"{part} {key}: {other} wants {there!r}, {source} wants {value!r}")
                continue
            self.parts[part][key] = value
            self._source.setdefault((part, key), source)

    def _add_tolerations(self, tolerations: Any) -> None:
        for toleration in tolerations:
            if toleration not in self.tolerations:
                self.tolerations.append(dict(toleration))

    def _say(self, problem: str) -> None:
        if self.conflict is None:
            self.conflict = f"{self._pod_set}: {problem}"
