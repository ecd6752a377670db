"""What the store keeps, and whom a change wakes."""

from typing import Any

import pytest

from goodput_operator.domain.model import JobKey, Refusal
from goodput_operator.domain.resources import Resources
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity
from tests.unit.runtime import raws

KEY = JobKey(raws.NAMESPACE, "digits")


class Woken:
    """Records who was woken since it was last asked."""

    def __init__(self) -> None:
        self.keys: list[JobKey] = []

    def __call__(self, key: JobKey, delay: float = 0.0) -> None:
        self.keys.append(key)

    def take(self) -> list[str]:
        names = sorted({key.name for key in self.keys})
        self.keys.clear()
        return names


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def store(woken: Woken) -> Store:
    store = Store(woken)
    store.put_job(raws.job())
    woken.take()
    return store


def placed_on(*nodes: str) -> dict[str, Any]:
    placement = {
        "attempt": 1,
        "nodes": list(nodes),
        "roles": [{"name": "worker", "nodes": "0*2"}],
        "committedAt": "2026-01-01T00:00:00Z",
    }
    return {"phase": "Running", "attempt": 1, "placement": placement}


# Order


def test_an_older_version_never_overwrites_a_newer_one(store: Store) -> None:
    store.put_pod(raws.pod(version=22, phase="Failed"))
    store.put_pod(raws.pod(version=21, phase="Running"))
    assert store.snapshot().pods[KEY][0].phase == "Failed"


def test_versions_are_compared_as_numbers(store: Store) -> None:
    store.put_pod(raws.pod(version=99, phase="Pending"))
    store.put_pod(raws.pod(version=100, phase="Running"))
    assert store.snapshot().pods[KEY][0].phase == "Running"


def test_a_late_answer_does_not_bring_a_deleted_object_back(store: Store) -> None:
    store.put_pod(raws.pod(version=20))
    store.drop_pod(Identity.of(raws.pod(version=23)))
    store.put_pod(raws.pod(version=22))
    assert KEY not in store.snapshot().pods


def test_an_object_deleted_before_it_was_known_stays_unknown(store: Store) -> None:
    store.drop_pod(Identity.of(raws.pod(version=23)))
    store.put_pod(raws.pod(version=20))
    assert KEY not in store.snapshot().pods


def test_a_namesake_created_since_survives_the_deletion_of_its_predecessor(store: Store) -> None:
    store.put_pod(raws.pod(version=20, uid="old"))
    store.put_pod(raws.pod(version=30, uid="new"))
    store.drop_pod(Identity.of(raws.pod(version=29, uid="old")))
    assert [pod.uid for pod in store.snapshot().pods[KEY]] == ["new"]
    assert store.pod_by_uid("old") is None
    assert store.pod_by_uid("new") is not None


def test_a_job_created_anew_under_the_same_name_replaces_the_old_one(store: Store) -> None:
    store.put_job(raws.job(version=50, uid="job-uid-2"))
    store.drop_job(Identity.of(raws.job(version=49)))
    job = store.job(KEY)
    assert job is not None
    assert job.uid == "job-uid-2"


# Whom a change wakes


def test_an_unchanged_view_wakes_nobody(store: Store, woken: Woken) -> None:
    store.put_job(raws.job(version=11))
    assert woken.take() == []
    job = store.job(KEY)
    assert job is not None
    assert job.resource_version == "11"


def test_a_pod_wakes_its_job(store: Store, woken: Woken) -> None:
    store.put_pod(raws.pod(version=20, phase="Pending"))
    assert woken.take() == ["digits"]
    store.put_pod(raws.pod(version=21, phase="Running"))
    assert woken.take() == ["digits"]


def test_a_workload_wakes_its_job(store: Store, woken: Woken) -> None:
    store.put_workload(raws.workload())
    assert woken.take() == ["digits"]
    store.drop_workload(Identity.of(raws.workload()))
    assert woken.take() == ["digits"]
    assert KEY not in store.snapshot().workloads


def test_a_workload_of_another_framework_is_passed_over(store: Store, woken: Woken) -> None:
    raw = raws.workload()
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "controller": True}
    ]
    store.put_workload(raw)
    assert woken.take() == []
    assert not store.snapshot().workloads


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        pytest.param({"heartbeat": "2026-01-01T00:05:00Z"}, [], id="a heartbeat"),
        pytest.param({"ready": False}, ["digits", "waiting"], id="not ready"),
        pytest.param({"unschedulable": True}, ["digits", "waiting"], id="cordoned"),
        pytest.param(
            {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
            ["digits", "waiting"],
            id="tainted",
        ),
    ],
)
def test_a_node_wakes_jobs_on_it_and_those_that_wait(
    store: Store, woken: Woken, change: dict[str, Any], wakes: list[str]
) -> None:
    store.put_job(raws.job(version=11, status=placed_on("node-1")))
    store.put_job(raws.job(name="elsewhere", uid="u2", status=placed_on("node-2")))
    store.put_job(raws.job(name="waiting", uid="u3", status={"phase": "Queued"}))
    store.put_job(raws.job(name="over", uid="u4", status={"phase": "Complete"}))
    store.put_node(raws.node(version=5))
    woken.take()
    store.put_node(raws.node(version=6, **change))
    assert woken.take() == wakes


def test_a_deleted_node_wakes_the_jobs_on_it(store: Store, woken: Woken) -> None:
    store.put_job(raws.job(version=11, status=placed_on("node-1")))
    store.put_node(raws.node())
    woken.take()
    store.drop_node(Identity.of(raws.node()))
    assert woken.take() == ["digits"]
    assert not store.snapshot().nodes


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_wakes_jobs_that_wait_for_its_room(
    store: Store, woken: Woken, phase: str
) -> None:
    store.put_job(raws.job(version=11, status=placed_on("node-1")))
    store.put_job(raws.job(name="waiting", uid="u3", status={"phase": "Queued"}))
    store.put_pod(raws.pod(version=20))
    woken.take()
    store.put_pod(raws.pod(version=21, phase=phase))
    assert woken.take() == ["digits", "waiting"]


def test_room_that_others_leave_wakes_jobs_that_wait(store: Store, woken: Woken) -> None:
    store.put_foreign_pod(raws.foreign_pod("web", "2", "node-1"))
    assert woken.take() == []
    store.put_foreign_pod(raws.foreign_pod("web", "2", "node-1", phase="Succeeded"))
    assert woken.take() == ["digits"]


def test_a_deleted_job_frees_room_and_is_forgotten(store: Store, woken: Woken) -> None:
    store.put_job(raws.job(name="waiting", uid="u3", status={"phase": "Queued"}))
    store.set_error(KEY, Refusal("refused"))
    woken.take()
    store.drop_job(Identity.of(raws.job(version=12)))
    assert woken.take() == ["waiting"]
    assert store.job(KEY) is None
    assert store.error(KEY) is None


# Flavours and checks


def test_a_flavor_that_arrives_late_is_resolved(store: Store, woken: Woken) -> None:
    assignment = {"name": "worker", "count": 2, "flavors": {"cpu": "gpus"}}
    store.put_workload(
        raws.workload(admission={"clusterQueue": "q", "podSetAssignments": [assignment]})
    )
    woken.take()
    store.put_flavor(raws.flavor(gpu="h100"))
    assert woken.take() == ["digits"]
    (workload,) = store.snapshot().workloads[KEY]
    assert workload.assignments[0].node_labels == {"gpu": "h100"}


def test_a_check_that_becomes_ours_is_seen_on_the_workload(store: Store, woken: Woken) -> None:
    entry = {
        "name": "power",
        "state": "Pending",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    store.put_workload(raws.workload(admissionChecks=[entry]))
    assert not store.snapshot().workloads[KEY][0].checks[0].ours
    woken.take()
    store.put_check(raws.check())
    assert woken.take() == ["digits"]
    assert store.snapshot().workloads[KEY][0].checks[0].ours
    assert [raw["metadata"]["name"] for raw in store.our_checks()] == ["power"]
    store.put_check(raws.check(version=5, controller="somebody.else/check"))
    assert store.our_checks() == []


# Usage of others


def test_usage_of_others_is_the_sum_of_their_bound_pods(store: Store) -> None:
    store.put_foreign_pod(raws.foreign_pod("a", "2", "node-1"))
    store.put_foreign_pod(raws.foreign_pod("b", "1500m", "node-1"))
    store.put_foreign_pod(raws.foreign_pod("pending", "4", None))
    expected = Resources({"cpu": 3500, "pods": 2000})
    assert store.snapshot().foreign_usage == {"node-1": expected}
    store.put_foreign_pod(raws.foreign_pod("a", "1", "node-1"))
    store.drop_foreign_pod(raws.foreign_pod("b", "1500m", "node-1"))
    assert store.snapshot().foreign_usage == {"node-1": Resources({"cpu": 1000, "pods": 1000})}
    store.replace_foreign_pods([])
    assert store.snapshot().foreign_usage == {}


# Claims and volumes


def test_a_claim_wakes_the_jobs_of_its_namespace_that_wait(store: Store, woken: Woken) -> None:
    store.put_job(raws.job(name="placed", uid="u4", status=placed_on("node-1")))
    woken.take()
    store.put_claim(raws.claim(version=30))
    assert woken.take() == ["digits"]
    assert store.snapshot().claims[raws.NAMESPACE, "data"].volume is None
    store.put_claim(raws.claim(version=31))
    assert woken.take() == []
    store.put_claim(raws.claim(version=32, namespace="team-b", uid="c2"))
    assert woken.take() == []
    store.drop_claim(Identity.of(raws.claim(version=33)))
    assert woken.take() == ["digits"]
    assert (raws.NAMESPACE, "data") not in store.snapshot().claims


def test_a_volume_wakes_the_jobs_that_wait_beside_its_claim(store: Store, woken: Woken) -> None:
    store.put_volume(raws.volume(version=30, claim=None))
    assert woken.take() == []
    store.put_volume(raws.volume(version=31))
    assert woken.take() == ["digits"]
    store.drop_volume(Identity.of(raws.volume(version=32)))
    assert store.snapshot().volumes == {}
