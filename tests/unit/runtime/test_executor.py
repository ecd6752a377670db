"""A plan becomes requests, once; what was already done is success."""

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain import plan as p
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.kube.errors import Conflict, Forbidden, Transient
from goodput_operator.kube.paths import EVENTS, PODS, TRAINING_JOBS, WORKLOADS
from goodput_operator.runtime.executor import CONCURRENT_WRITES, Executor, Taken
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient, stored_job

KEY = JobKey(raws.NAMESPACE, "digits")


class World:
    """A job that both the API server and the store know."""

    def __init__(self, replicas: int = 2) -> None:
        self.client = FakeClient()
        self.store = Store(lambda key, delay=0.0: None)
        self.executor = Executor(self.client, self.store, lambda: None)  # type: ignore[arg-type]
        self.store.put_job(self.client.add(TRAINING_JOBS, raws.job(replicas=replicas)))

    @property
    def job(self) -> JobView:
        job = self.store.job(KEY)
        assert job is not None
        return job

    async def execute(self, *actions: p.Action, **plan: object) -> None:
        await self.executor.execute(self.job, p.Plan(actions=actions, **plan))  # type: ignore[arg-type]

    def pods(self) -> list[str]:
        return sorted(name for plural, name in self.client.objects if plural == "pods")

    def add_pod(self, **fields: object) -> None:
        self.store.put_pod(self.client.add(PODS, raws.pod(**fields)))  # type: ignore[arg-type]

    def add_workload(self) -> str:
        raw = self.client.add(WORKLOADS, raws.workload())
        self.store.put_workload(raw)
        return str(raw["metadata"]["resourceVersion"])


@pytest.fixture
def world() -> World:
    return World()


def ranks(count: int) -> list[p.CreatePod]:
    return [p.CreatePod(1, "worker", rank, "node-1") for rank in range(count)]


# Children


async def test_a_gang_is_created_concurrently_but_boundedly() -> None:
    world = World(replicas=300)
    await world.execute(*ranks(300))
    assert len(world.pods()) == 300
    assert 1 < world.client.most_at_once <= CONCURRENT_WRITES
    assert len(world.store.snapshot().pods[KEY]) == 300


async def test_what_was_created_is_known_without_waiting_for_a_watch(world: World) -> None:
    await world.execute(p.CreateWorkload("tj-x"), *ranks(2))
    snapshot = world.store.snapshot()
    assert [workload.name for workload in snapshot.workloads[KEY]] == ["tj-x"]
    assert {pod.rank for pod in snapshot.pods[KEY]} == {0, 1}


async def test_a_plan_executed_twice_is_done_once(world: World) -> None:
    actions = (p.EnsureService(), p.CreateWorkload("tj-x"), *ranks(2))
    await world.execute(*actions)
    before = dict(world.client.objects)
    await world.execute(*actions)
    assert world.client.objects == before


async def test_a_name_taken_by_another_owner_is_an_error_that_names_it(world: World) -> None:
    taken = raws.pod(name="digits-a1-worker-0")
    taken["metadata"]["ownerReferences"] = [raws.owner(uid="somebody else's")]
    world.client.add(PODS, taken)
    with pytest.raises(Taken, match=r"pods digits-a1-worker-0: .*another owner"):
        await world.execute(*ranks(1))


async def test_a_refusal_costs_few_requests_however_large_the_gang() -> None:
    world = World(replicas=1000)
    world.client.refuse["create", "pods"] = Forbidden("create pods", "exceeded quota")
    with pytest.raises(Forbidden):
        await world.execute(*ranks(1000))
    assert world.client.count("create", "pods") == 1


async def test_nothing_after_a_failed_action_is_done(world: World) -> None:
    world.client.refuse["create", "services"] = Transient("create services", "no answer")
    status = world.job.status.model_copy(update={"phase": Phase.RUNNING})
    event = p.JobEvent("Normal", "GangStarted", "started")
    with pytest.raises(Transient):
        await world.execute(p.EnsureService(), *ranks(2), status=status, events=(event,))
    assert world.pods() == []
    assert stored_job(world.client)["status"] == {}
    assert world.client.count("create", "events") == 0


# Deletes


async def test_a_pod_that_stops_is_known_to_be_stopping(world: World) -> None:
    world.add_pod(uid="p")
    await world.execute(p.DeletePod("digits-a1-worker-0", "p"))
    (pod,) = world.store.snapshot().pods[KEY]
    assert pod.deleting


async def test_a_pod_that_is_gone_at_once_is_known_to_be_gone(world: World) -> None:
    world.add_pod(uid="p", node=None, phase="Pending")
    await world.execute(p.DeletePod("digits-a1-worker-0", "p", 0))
    assert KEY not in world.store.snapshot().pods


async def test_deleting_what_is_gone_is_success(world: World) -> None:
    world.store.put_pod(raws.pod(uid="p"))
    await world.execute(p.DeletePod("digits-a1-worker-0", "p"), p.DeleteWorkload("tj", "w"))
    assert KEY not in world.store.snapshot().pods


async def test_a_namesake_of_a_deleted_pod_is_spared(world: World) -> None:
    world.add_pod(uid="new")
    await world.execute(p.DeletePod("digits-a1-worker-0", "old"))
    assert world.pods() == ["digits-a1-worker-0"]
    (pod,) = world.store.snapshot().pods[KEY]
    assert (pod.uid, pod.deleting) == ("new", False)


# The Workload


async def test_the_workload_is_written_only_in_the_version_that_was_decided_on(
    world: World,
) -> None:
    version = world.add_workload()
    world.client.add(WORKLOADS, raws.workload())
    with pytest.raises(Conflict):
        await world.execute(p.SetPodsReady("tj-digits-x", version, True, "all ranks are ready"))
    assert world.client.count("update", "workloads") == 0


async def test_a_conflict_brings_the_newest_version_of_the_workload(world: World) -> None:
    version = world.add_workload()
    newer = world.client.add(WORKLOADS, raws.workload())
    with pytest.raises(Conflict):
        await world.execute(p.SetPodsReady("tj-digits-x", version, True, "ready"))
    (workload,) = world.store.snapshot().workloads[KEY]
    assert workload.resource_version == newer["metadata"]["resourceVersion"]


async def test_what_was_written_to_the_workload_is_read_back(world: World) -> None:
    version = world.add_workload()
    await world.execute(
        p.SetPodsReady("tj-digits-x", version, True, "ready"),
    )
    (workload,) = world.store.snapshot().workloads[KEY]
    assert workload.pods_ready is not None
    assert workload.pods_ready.status


async def test_the_workload_is_deactivated(world: World) -> None:
    world.add_workload()
    await world.execute(p.SetWorkloadActive("tj-digits-x", False))
    (workload,) = world.store.snapshot().workloads[KEY]
    assert not workload.active


# Status


async def test_a_commit_is_refused_when_the_job_has_changed(world: World) -> None:
    stale = world.job
    world.client.add(TRAINING_JOBS, raws.job())
    status = stale.status.model_copy(update={"attempt": 1})
    with pytest.raises(Conflict):
        await world.executor.execute(stale, p.Plan(status=status, commit=True))
    assert stored_job(world.client)["status"] == {}


async def test_a_plain_status_is_written_over_reported_progress(world: World) -> None:
    stale = world.job
    progress = {"attempt": 1, "step": 7, "reportedAt": "2026-01-01T00:00:00Z"}
    world.client.add(TRAINING_JOBS, raws.job(status={"progress": progress}))
    status = stale.status.model_copy(update={"phase": Phase.RUNNING})
    await world.executor.execute(stale, p.Plan(status=status))
    assert world.job.status.phase is Phase.RUNNING
    assert world.job.status.progress is not None
    assert world.job.status.progress.step == 7


async def test_a_status_never_reaches_a_job_created_since_under_the_same_name(
    world: World,
) -> None:
    stale = world.job
    world.client.add(TRAINING_JOBS, raws.job(uid="job-uid-2"))
    status = stale.status.model_copy(update={"phase": Phase.COMPLETE})
    with pytest.raises(Conflict):
        await world.executor.execute(stale, p.Plan(status=status))
    assert stored_job(world.client)["status"] == {}


# Events


async def test_the_same_occurrence_is_told_once_even_by_another_process(world: World) -> None:
    event = p.JobEvent("Warning", c.EventReason.NODE_LOST, "node-1 is lost", key="a1")
    await world.execute(events=(event, event))
    await world.execute(events=(event,))
    restarted = Executor(world.client, world.store, lambda: None)  # type: ignore[arg-type]
    await restarted.execute(world.job, p.Plan(events=(event,)))
    told = [name for plural, name in world.client.objects if plural == EVENTS.plural]
    assert len(told) == 1
    assert world.client.count("create", "events") == 2


async def test_another_occurrence_is_told_again(world: World) -> None:
    for attempt in (1, 2):
        event = p.JobEvent("Warning", c.EventReason.NODE_LOST, "lost", key=f"a{attempt}")
        await world.execute(events=(event,))
    assert world.client.count("create", "events") == 2


async def test_an_event_that_is_refused_holds_nothing_up(world: World) -> None:
    world.client.refuse["create", "events"] = Forbidden("create events", "terminating namespace")
    await world.execute(events=(p.JobEvent("Normal", "Queued", "queued"),))
