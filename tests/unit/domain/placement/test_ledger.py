"""What is free on each node when a gang is planned."""

from dataclasses import replace
from typing import Any

import pytest

from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import Phase, Placement, RolePlacement, TrainingJobStatus
from goodput_operator.domain.model import JobKey, JobView, NodeView, PodView, Snapshot
from goodput_operator.domain.placement.ledger import free_resources
from goodput_operator.domain.resources import Resources

MINE = JobKey("team", "mine")
OTHER = JobKey("team", "other")
NOW = "2026-01-01T00:00:00Z"


def gpus(count: int) -> Resources:
    return Resources({"nvidia.com/gpu": count * 1000})


def node(name: str, ready: bool = True) -> NodeView:
    return NodeView(
        name, {}, (), False, ready, None, "", None, gpus(8) + Resources({"pods": 10_000})
    )


def job(key: JobKey, placement: Placement | None = None, **changes: Any) -> JobView:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    view = JobView(
        key=key,
        uid=f"uid-{key.name}",
        resource_version="1",
        generation=1,
        created_at=0.0,
        deleting=False,
        labels={},
        spec=TrainingJobSpec.model_validate({"roles": [role]}),
        status=TrainingJobStatus(attempt=2, placement=placement),
    )
    return replace(view, **changes)


def placement(nodes: str = "0,1", **changes: Any) -> Placement:
    made = Placement(
        attempt=2,
        nodes=("a", "b"),
        roles=(RolePlacement(name="worker", nodes=nodes),),
        committed_at=NOW,
    )
    return made.model_copy(update=changes)


def pod(key: JobKey, node: str | None = "a", rank: int = 0, **changes: Any) -> PodView:
    view = PodView(
        name=f"{key.name}-a2-worker-{rank}",
        namespace=key.namespace,
        uid=f"pod-{rank}",
        resource_version="1",
        job=key.name,
        job_uid=f"uid-{key.name}",
        attempt=2,
        role="worker",
        rank=rank,
        created_at=0.0,
        deleting=False,
        phase="Running",
        ready=True,
        node=node,
        pinned_node=node,
        requests=gpus(4),
        status_reason="",
        status_message="",
        disruption=None,
        unschedulable_message=None,
        waiting=None,
    )
    return replace(view, **changes)


def free_gpus(
    jobs: tuple[JobView, ...] = (),
    pods: tuple[tuple[JobKey, PodView], ...] = (),
    foreign: dict[str, Resources] | None = None,
    lost: tuple[str, ...] = (),
) -> dict[str, int]:
    by_job: dict[JobKey, tuple[PodView, ...]] = {}
    for key, view in pods:
        by_job[key] = (*by_job.get(key, ()), view)
    snapshot = Snapshot(
        jobs={view.key: view for view in jobs},
        workloads={},
        pods=by_job,
        nodes={name: node(name, ready=name not in lost) for name in ("a", "b")},
        foreign_usage=foreign or {},
    )
    free = free_resources(snapshot, MINE)
    return {name: amounts.get("nvidia.com/gpu") // 1000 for name, amounts in free.items()}


def test_an_empty_node_has_all_that_it_can_allocate() -> None:
    assert free_gpus() == {"a": 8, "b": 8}


def test_pods_of_others_count_and_may_over_commit() -> None:
    assert free_gpus(foreign={"a": gpus(3), "b": gpus(9), "gone": gpus(1)}) == {"a": 5, "b": -1}


def test_bound_pods_count() -> None:
    assert free_gpus((job(OTHER),), ((OTHER, pod(OTHER)),)) == {"a": 4, "b": 8}


def test_pinned_pods_count_before_they_are_bound() -> None:
    waiting = pod(OTHER, node=None, pinned_node="b", phase="Pending")
    assert free_gpus((job(OTHER),), ((OTHER, waiting),)) == {"a": 8, "b": 4}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_do_not_count(phase: str) -> None:
    assert free_gpus((job(OTHER),), ((OTHER, pod(OTHER, phase=phase)),)) == {"a": 8, "b": 8}


def test_terminating_pods_of_other_jobs_count_until_they_are_gone() -> None:
    assert free_gpus((job(OTHER),), ((OTHER, pod(OTHER, deleting=True)),)) == {"a": 4, "b": 8}


def test_pods_of_a_deleted_job_count_until_they_are_gone() -> None:
    assert free_gpus((), ((OTHER, pod(OTHER)),)) == {"a": 4, "b": 8}


class TestOwnPods:
    def test_terminating_ones_of_an_earlier_attempt_make_room(self) -> None:
        assert free_gpus((job(MINE),), ((MINE, pod(MINE, deleting=True)),)) == {"a": 8, "b": 8}

    def test_running_ones_of_an_earlier_attempt_do_not(self) -> None:
        assert free_gpus((job(MINE),), ((MINE, pod(MINE)),)) == {"a": 4, "b": 8}

    def test_terminating_ones_of_the_placed_attempt_do_not(self) -> None:
        mine = job(MINE, placement())
        assert free_gpus((mine,), ((MINE, pod(MINE, deleting=True)),)) == {"a": 4, "b": 8}

    def test_those_on_a_lost_node_do_not(self) -> None:
        leaving = pod(MINE, deleting=True)
        assert free_gpus((job(MINE),), ((MINE, leaving),), lost=("a",)) == {"a": 4, "b": 8}

    def test_those_of_a_deleted_namesake_do_not(self) -> None:
        leaving = pod(MINE, deleting=True, job_uid="uid-of-old")
        assert free_gpus((job(MINE),), ((MINE, leaving),)) == {"a": 4, "b": 8}


class TestCommittedRanks:
    def test_count_before_their_pods_exist(self) -> None:
        assert free_gpus((job(OTHER, placement()),)) == {"a": 4, "b": 4}

    def test_count_once_when_some_pods_exist(self) -> None:
        assert free_gpus((job(OTHER, placement()),), ((OTHER, pod(OTHER)),)) == {"a": 4, "b": 4}

    def test_an_ended_pod_is_not_expected_again(self) -> None:
        ended = pod(OTHER, phase="Failed")
        assert free_gpus((job(OTHER, placement()),), ((OTHER, ended),)) == {"a": 8, "b": 4}

    def test_a_pod_of_an_earlier_attempt_does_not_stand_in(self) -> None:
        old = pod(OTHER, attempt=1)
        assert free_gpus((job(OTHER, placement()),), ((OTHER, old),)) == {"a": 0, "b": 4}

    def test_a_pod_that_is_missing_after_all_were_created_is_lost(self) -> None:
        assert free_gpus((job(OTHER, placement(created_at=NOW)),)) == {"a": 8, "b": 8}

    def test_own_ones_do_not_count(self) -> None:
        assert free_gpus((job(MINE, placement()),)) == {"a": 8, "b": 8}

    def test_those_of_a_job_being_deleted_do_not_count(self) -> None:
        assert free_gpus((job(OTHER, placement(), deleting=True),)) == {"a": 8, "b": 8}

    @pytest.mark.parametrize("phase", [Phase.COMPLETE, Phase.FAILED])
    def test_those_of_a_job_that_is_over_do_not_count(self, phase: Phase) -> None:
        status = TrainingJobStatus(attempt=2, placement=placement(), phase=phase)
        assert free_gpus((job(OTHER, status=status),)) == {"a": 8, "b": 8}

    @pytest.mark.parametrize("nodes", ["7", "a*b"])
    def test_a_damaged_placement_of_another_job_does_not_stop_planning(self, nodes: str) -> None:
        assert free_gpus((job(OTHER, placement(nodes)),)) == {"a": 8, "b": 8}

    def test_nor_does_a_spec_that_cannot_be_read(self) -> None:
        assert free_gpus((job(OTHER, placement(), spec=None),)) == {"a": 8, "b": 8}
