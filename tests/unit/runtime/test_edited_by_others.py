"""Children and statuses that somebody edits by hand, as the store and the executor take them."""

from typing import Any

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain import plan as p
from goodput_operator.domain.model import JobKey, Refusal
from goodput_operator.domain.resources import Resources
from goodput_operator.kube.errors import Invalid, Terminating, from_response
from goodput_operator.kube.paths import TRAINING_JOBS
from goodput_operator.runtime.executor import Executor
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient, stored_job
from tests.unit.runtime.test_worker import KEY, Operation, until, working

OTHER = JobKey(raws.NAMESPACE, "other")
CPU = Resources.parse({"cpu": "1", "pods": 1})


@pytest.fixture
def store() -> Store:
    made = Store(lambda key, delay=0.0: None)
    made.put_job(raws.job())
    return made


def without_owner(raw: dict[str, Any], version: int) -> dict[str, Any]:
    """The object after somebody has removed its ownerReferences."""
    metadata = {**raw["metadata"], "ownerReferences": [], "resourceVersion": str(version)}
    return {**raw, "metadata": metadata}


# Pods


def test_a_pod_whose_owner_is_removed_is_no_longer_the_jobs(store: Store) -> None:
    store.put_pod(raws.pod(version=20))
    store.put_pod(without_owner(raws.pod(), 21))
    assert KEY not in store.snapshot().pods
    assert store.pod_by_uid("pod-uid-1") is None


def test_a_pod_with_our_labels_that_no_job_controls_takes_room(store: Store) -> None:
    store.put_foreign_pod(raws.foreign_pod("stranger", "1", "node-1"))
    store.put_pod(without_owner(raws.pod(), 21))
    assert store.snapshot().foreign_usage == {"node-1": CPU + CPU}
    store.replace_foreign_pods([])
    assert store.snapshot().foreign_usage == {"node-1": CPU}
    store.drop_pod(Identity.of(without_owner(raws.pod(), 22)))
    assert store.snapshot().foreign_usage == {}


def test_a_pod_that_gets_its_owner_back_is_counted_once(store: Store) -> None:
    store.put_pod(without_owner(raws.pod(), 21))
    store.put_pod(raws.pod(version=22))
    assert [pod.name for pod in store.snapshot().pods[KEY]] == ["digits-a1-worker-0"]
    assert store.snapshot().foreign_usage == {}


def test_a_pod_that_is_relabelled_is_in_one_place_only(store: Store) -> None:
    store.put_pod(raws.pod(version=20))
    store.put_pod(raws.pod(version=21, labels={**raws.labels(), c.LABEL_JOB: "other"}))
    assert set(store.snapshot().pods) == {OTHER}
    store.drop_pod(Identity.of(raws.pod(version=22)))
    assert store.snapshot().pods == {}


# Workloads


def test_a_workload_whose_owner_is_removed_is_no_longer_the_jobs(store: Store) -> None:
    store.put_workload(raws.workload(version=30))
    store.put_workload(without_owner(raws.workload(), 31))
    assert KEY not in store.snapshot().workloads
    store.drop_workload(Identity.of(raws.workload(version=32)))
    assert KEY not in store.snapshot().workloads


# Namespaces


def test_what_was_refused_to_a_job_is_not_held_against_its_namesake(store: Store) -> None:
    store.set_error(KEY, Refusal("the namespace is being deleted", final=True))
    store.put_job(raws.job(version=50, uid="another"))
    assert store.error(KEY) is None


def test_a_terminating_namespace_is_told_by_its_cause() -> None:
    status = {
        "reason": "Forbidden",
        "message": "because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
    }
    assert type(from_response("create pods", 403, status, None)) is Terminating


async def test_nothing_more_is_tried_in_a_terminating_namespace() -> None:
    async with working() as operation:
        refusal = Terminating("create workloads", "team-a is being terminated")
        operation.client.refuse["create", "workloads"] = refusal
        operation.add_job()
        await until(lambda: operation.running().get("reason") == c.Reason.NAMESPACE_TERMINATING)
        writes = len(operation.client.calls)
        for version in range(200, 205):
            change(operation, version)
            await until(lambda: operation.queue.depth == 0)
        assert operation.client.count("create", "workloads") == 1
        assert operation.counts.errors == ["terminating"]
        assert len(operation.client.calls) == writes


def change(operation: Operation, version: int) -> None:
    """Something happens in the namespace."""
    operation.queue.succeeded(KEY)
    operation.store.put_pod(raws.pod(version=version, phase="Pending" if version % 2 else "Failed"))


# The status


class World:
    """A job whose status others write to."""

    def __init__(self, **status: Any) -> None:
        self.client = FakeClient()
        self.store = Store(lambda key, delay=0.0: None)
        self.executor = Executor(self.client, self.store, lambda: None)  # type: ignore[arg-type]
        self.store.put_job(self.client.add(TRAINING_JOBS, raws.job(status=status)))

    async def write(self) -> dict[str, Any]:
        """The status in the API server after one of ours was written."""
        job = self.store.job(KEY)
        assert job is not None
        status = job.status.model_copy(update={"phase": Phase.QUEUED, "requeue": None})
        await self.executor.execute(job, p.Plan(status=status, commit=True))
        written: dict[str, Any] = stored_job(self.client)["status"]
        assert self.store.job(KEY) is not None
        return written


REQUEUE = {
    "reason": "WaitingForNodes",
    "message": "somebody's",
    "since": "2026-01-01T00:00:00Z",
    "notBefore": "2026-01-01T00:00:00Z",
}


async def test_what_somebody_wrote_where_we_write_nothing_is_taken_away() -> None:
    world = World(requeue=REQUEUE)
    applied = world.client.apply_status

    async def apply_status(*arguments: Any) -> Any:
        answer = await applied(*arguments)
        return world.client.add(
            TRAINING_JOBS, {**answer, "status": {**answer["status"], "requeue": REQUEUE}}
        )

    world.client.apply_status = apply_status  # type: ignore[method-assign]
    written = await world.write()
    assert written["requeue"] is None
    assert written["phase"] == "Queued"


async def test_what_is_no_whole_without_our_part_is_taken_away_too() -> None:
    world = World()
    world.client.refuse["apply", "trainingjobs"] = Invalid("apply", "requeue.reason: Required")
    written = await world.write()
    assert written["phase"] == "Queued"
    assert written["requeue"] is None
    assert "progress" not in written, "it is the progress endpoint's"


async def test_a_job_that_somebody_writes_to_all_the_time_is_worked_on_all_the_same() -> None:
    async with working() as operation:
        applied, overtaken = operation.client.apply_status, []

        async def apply_status(*arguments: Any) -> Any:
            if len(overtaken) < 40:
                overtaken.append(operation.client.add(TRAINING_JOBS, stored_job(operation.client)))
            return await applied(*arguments)

        operation.client.apply_status = apply_status  # type: ignore[method-assign]
        operation.add_job()
        await until(lambda: stored_job(operation.client)["status"].get("phase") == "Queued")
