from typing import Any

import pytest

from goodput_operator.domain.model import CheckState, WorkloadCondition
from goodput_operator.observe.flavor import FlavorView, parse_flavor
from goodput_operator.observe.workload import parse_workload

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SPOT = {"key": "spot", "operator": "Equal", "value": "true"}
FLAVORS = {
    "h100": FlavorView("h100", {"accelerator": "h100"}, (GPU,)),
    "cpu": FlavorView("cpu", {"pool": "training"}, ()),
}


def update(name: str = "worker", **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def check(name: str, *updates: dict[str, Any], state: str = "Ready") -> dict[str, Any]:
    return {"name": name, "state": state, "message": "fits", "podSetUpdates": list(updates)}


def workload(*checks: dict[str, Any], **assignment: Any) -> dict[str, Any]:
    assigned = {
        "name": "worker",
        "flavors": {"nvidia.com/gpu": "h100", "cpu": "cpu", "memory": "cpu"},
        "count": 4,
        **assignment,
    }
    return {
        "metadata": {
            "name": "tj-digits-0123456789",
            "namespace": "team-a",
            "uid": "wl-1",
            "resourceVersion": "17",
            "creationTimestamp": "2026-01-31T08:00:00Z",
            "ownerReferences": [
                {"kind": "Other", "uid": "other"},
                {"kind": "TrainingJob", "uid": "job-1", "controller": True},
            ],
        },
        "spec": {
            "queueName": "gpus",
            "podSets": [
                {
                    "name": "worker",
                    "count": 4,
                    "template": {"spec": {"nodeSelector": {"zone": "a"}}},
                }
            ],
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "admissionChecks": list(checks),
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "True",
                    "reason": "QuotaReserved",
                    "message": "Quota reserved in ClusterQueue cq",
                    "lastTransitionTime": "2026-01-31T08:00:00Z",
                },
                {"type": "Evicted", "status": "False", "reason": "QuotaReserved"},
            ],
        },
    }


def parse(raw: dict[str, Any]) -> Any:
    return parse_workload(raw, FLAVORS, frozenset({"power"}))


def test_reads_a_workload() -> None:
    view = parse(workload(check("power"), check("prov", state="Pending")))
    assert (view.name, view.owner_uid, view.queue) == ("tj-digits-0123456789", "job-1", "gpus")
    assert (view.active, view.deleting, view.has_admission) == (True, False, True)
    assert view.quota_reserved == WorkloadCondition(
        True, "QuotaReserved", "Quota reserved in ClusterQueue cq", 1769846400.0
    )
    assert view.admitted is None
    assert not view.is_evicted
    assert view.holds_quota
    assert view.checks == (
        CheckState("power", "Ready", "fits", True),
        CheckState("prov", "Pending", "fits", False),
    )


def test_flavours_of_all_resources_and_updates_of_all_checks_are_merged() -> None:
    view = parse(
        workload(
            check("power", update(nodeSelector={"rack": "r1"}, tolerations=[GPU, SPOT])),
            check(
                "prov",
                update(labels={"a": "1"}, annotations={"consume": "req-1"}),
                update("other", labels={"b": "2"}),
            ),
        )
    )
    (assigned,) = view.assignments
    assert (assigned.name, assigned.count) == ("worker", 4)
    assert assigned.node_labels == {"accelerator": "h100", "pool": "training", "rack": "r1"}
    assert assigned.tolerations == (GPU, SPOT)
    assert assigned.labels == {"a": "1"}
    assert assigned.annotations == {"consume": "req-1"}
    assert assigned.conflict is None


@pytest.mark.parametrize(
    ("checks", "conflict"),
    [
        (
            [check("power", update(nodeSelector={"accelerator": "a100"}))],
            "role worker: nodeSelector accelerator: ResourceFlavor h100 wants 'h100', "
            "AdmissionCheck power wants 'a100'",
        ),
        (
            [
                check("power", update(annotations={"x": "1"})),
                check("prov", update(annotations={"x": "2"})),
            ],
            "role worker: annotations x: AdmissionCheck power wants '1', "
            "AdmissionCheck prov wants '2'",
        ),
        (
            [check("prov", update(nodeSelector={"zone": "b"}))],
            "role worker: nodeSelector zone: the role's template wants 'a', "
            "AdmissionCheck prov wants 'b'",
        ),
    ],
)
def test_a_conflict_names_both_sides(checks: list[dict[str, Any]], conflict: str) -> None:
    (assigned,) = parse(workload(*checks)).assignments
    assert assigned.conflict == conflict


@pytest.mark.parametrize(
    "agreeing", [update(nodeSelector={"accelerator": "h100"}), update(nodeSelector={"zone": "a"})]
)
def test_two_that_want_the_same_do_not_conflict(agreeing: dict[str, Any]) -> None:
    (assigned,) = parse(workload(check("prov", agreeing))).assignments
    assert assigned.conflict is None


def test_an_unknown_flavour_is_a_conflict() -> None:
    (assigned,) = parse(workload(flavors={"cpu": "gone"})).assignments
    assert assigned.conflict == (
        "role worker: ResourceFlavor gone does not exist, so its nodes are not known"
    )


def test_a_missing_count_is_that_of_the_pod_set() -> None:
    (assigned,) = parse(workload(count=None)).assignments
    assert assigned.count == 4


def test_reads_what_was_given_back() -> None:
    given = {"reclaimablePods": [{"name": "worker", "count": 2}]}
    assert parse_workload({"status": given}, {}, frozenset()).reclaimable == {"worker": 2}


def test_pods_of_a_topology_assignment_are_marked_for_kueue() -> None:
    raw = workload(topologyAssignment={"levels": ["rack"], "slices": []})
    (assigned,) = parse(raw).assignments
    assert assigned.labels == {"kueue.x-k8s.io/podset": "worker"}
    assert assigned.annotations == {
        "kueue.x-k8s.io/podset-unconstrained-topology": "true",
        "kueue.x-k8s.io/workload": "tj-digits-0123456789",
    }
    raw["spec"]["podSets"][0]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack", "else": "x"}
    }
    (assigned,) = parse(raw).assignments
    assert assigned.annotations == {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "kueue.x-k8s.io/workload": "tj-digits-0123456789",
    }


def test_a_topology_assignment_that_cannot_be_read_is_a_conflict_and_no_freedom() -> None:
    raw = workload(topologyAssignment={"levels": ["rack"], "slices": [{"domainCount": 1}]})
    (assigned,) = parse(raw).assignments
    assert assigned.conflict is not None
    assert "topologyAssignment cannot be read" in assigned.conflict


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": 1, "spec": [], "status": "x"},
        {"status": {"admission": None, "admissionChecks": [None], "conditions": {}}},
        {"status": {"admission": {"podSetAssignments": [{}, 3]}}},
    ],
)
def test_wrong_types_read_as_empty(raw: dict[str, Any]) -> None:
    view = parse(raw)
    assert (view.name, view.owner_uid, view.active, view.checks) == ("", "", True, ())
    assert not view.is_admitted


def test_reads_a_flavour() -> None:
    raw = {"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"a": "b"}, "tolerations": [GPU]}}
    assert parse_flavor(raw) == FlavorView("h100", {"a": "b"}, (GPU,))
    assert parse_flavor({}) == FlavorView("", {}, ())
