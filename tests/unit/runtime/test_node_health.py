"""NodeHealths are written once for each failure, tended as they decay, and in nobody's way."""

import asyncio

import pytest

from goodput_operator.api.node_health import FailureKind, NodeFailure, NodeHealthStatus
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain import penalty
from goodput_operator.domain import plan as p
from goodput_operator.domain.model import JobKey
from goodput_operator.domain.policy import DEFAULT_POLICY as POLICY
from goodput_operator.kube.errors import Conflict, Forbidden, NotInstalled, Transient
from goodput_operator.kube.paths import NODE_HEALTHS, TRAINING_JOBS
from goodput_operator.runtime import penalties
from goodput_operator.runtime.executor import Executor
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient

KEY = JobKey(raws.NAMESPACE, "digits")
NODE = "node-1"


class World:
    """An API server with a job and a node, and an operator that knows of them."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.woken: list[JobKey] = []
        self.store = Store(lambda key, delay=0.0: self.woken.append(key))
        self.executor = Executor(self.client, self.store, lambda: None)  # type: ignore[arg-type]
        self.store.put_job(self.client.add(TRAINING_JOBS, raws.job()))
        self.store.put_node(raws.node())

    async def blame(self, *failures: NodeFailure, now: float) -> None:
        snapshot = self.store.snapshot()
        health = snapshot.health.get(NODE)
        status = penalty.add(health, snapshot.nodes[NODE], failures, now, POLICY)
        version = health.resource_version if health else None
        await self.set_health(version, status)

    async def set_health(self, version: str | None, status: NodeHealthStatus) -> None:
        job = self.store.job(KEY)
        assert job is not None
        action = p.SetNodeHealth(NODE, "node-1-uid", version, status)
        await self.executor.execute(job, p.Plan(actions=(action,)))

    def stored(self) -> NodeHealthStatus | None:
        raw = self.client.objects.get((NODE_HEALTHS.plural, NODE))
        return NodeHealthStatus.model_validate(raw["status"]) if raw else None


@pytest.fixture
def world() -> World:
    return World()


def failure(time: float, attempt: int = 1) -> NodeFailure:
    return NodeFailure(
        job="team-a/digits",
        job_uid=f"uid-{attempt}",
        attempt=attempt,
        kind=FailureKind.NODE_LOST,
        time=format_micro_time(time),
    )


async def test_the_first_failure_creates_and_the_next_ones_update(world: World) -> None:
    await world.blame(failure(0), now=0)
    raw = world.client.objects[NODE_HEALTHS.plural, NODE]
    assert raw["metadata"]["ownerReferences"][0]["uid"] == "node-1-uid"
    await world.blame(failure(1_000, 2), now=1_000)
    stored = world.stored()
    assert stored is not None
    assert (stored.count, stored.failures, stored.node_uid) == (2, {"nodeLost": 2}, "node-1-uid")
    assert world.client.count("create", NODE_HEALTHS.plural) == 1
    assert world.store.snapshot().health[NODE].status == stored


async def test_one_that_nobody_knew_of_is_read_and_decided_anew(world: World) -> None:
    world.client.add(NODE_HEALTHS, {"metadata": {"name": NODE}, "status": {"nodeUid": "other"}})
    with pytest.raises(Conflict):
        await world.blame(failure(0), now=0)
    await world.blame(failure(0), now=0)
    stored = world.stored()
    assert stored is not None
    assert (stored.count, stored.node_uid) == (1, "node-1-uid")


async def test_what_was_made_from_an_old_version_is_refused(world: World) -> None:
    await world.blame(failure(0), now=0)
    with pytest.raises(Conflict):
        await world.set_health("1", NodeHealthStatus())


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("create", NotInstalled("create nodehealths", "the server could not find it")),
        ("create", Forbidden("create nodehealths", "may not")),
        ("update", Forbidden("update nodehealths", "may not")),
    ],
)
async def test_a_cluster_that_does_not_allow_it_holds_no_job_up(world: World, verb, error) -> None:
    world.client.refuse[verb, NODE_HEALTHS.plural] = error
    await world.blame(failure(0), now=0)


async def test_what_fails_for_a_moment_is_tried_again(world: World) -> None:
    world.client.refuse["update", NODE_HEALTHS.plural] = Transient("update", "time-out")
    with pytest.raises(Transient):
        await world.blame(failure(0), now=0)


async def test_what_has_decayed_is_deleted_and_waiting_jobs_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.blame(failure(0), now=0)
    world.woken.clear()
    monkeypatch.setattr(penalties.time, "time", lambda: 10 * POLICY.node_penalty_half_life_seconds)
    await penalties.tend(world.client, world.store, POLICY)  # type: ignore[arg-type]
    assert (world.stored(), world.store.snapshot().health) == (None, {})
    assert world.woken == [KEY]


async def test_a_score_that_has_decayed_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.blame(failure(0), now=0)
    monkeypatch.setattr(penalties.time, "time", lambda: POLICY.node_penalty_half_life_seconds)
    for _ in range(3):
        await penalties.tend(world.client, world.store, POLICY)  # type: ignore[arg-type]
    stored = world.stored()
    assert stored is not None
    assert stored.score == 0.5
    assert world.client.count("update", NODE_HEALTHS.plural) == 2


async def test_tending_goes_on_after_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.blame(failure(0), now=0)
    monkeypatch.setattr(penalties.time, "time", lambda: POLICY.node_penalty_half_life_seconds)
    world.client.refuse["update", NODE_HEALTHS.plural] = Transient("update", "time-out")
    task = asyncio.create_task(
        penalties.keep_penalties(world.client, world.store, POLICY, 0.001)  # type: ignore[arg-type]
    )
    await asyncio.sleep(0.02)
    del world.client.refuse["update", NODE_HEALTHS.plural]
    await asyncio.sleep(0.02)
    task.cancel()
    stored = world.stored()
    assert stored is not None
    assert stored.score == 0.5


def test_one_that_cannot_be_read_stands_for_nothing(world: World) -> None:
    raw = {"metadata": {"name": NODE, "uid": "u", "resourceVersion": "7"}, "status": {"recent": 3}}
    world.store.put_health(raw)
    assert world.store.snapshot().health[NODE].status == NodeHealthStatus()
    world.store.drop_health(Identity.of(raw))
    assert not world.store.snapshot().health


def test_room_is_told_to_jobs_that_wait_for_it_where_they_are(world: World) -> None:
    placement = {
        "attempt": 1,
        "nodes": [NODE],
        "roles": [],
        "committedAt": "2026-01-01T00:00:00Z",
    }
    stays = {
        "type": "Migrating",
        "status": "False",
        "reason": "WaitingForRoom",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for version, conditions in ((20, []), (21, [stays])):
        status = {"phase": "Running", "placement": placement, "conditions": conditions}
        world.store.put_job(raws.job(version=version + 100_000, status=status))
        world.woken.clear()
        world.store.put_node(raws.node(version=version, name=f"new-{version}"))
        assert world.woken == ([KEY] if conditions else [])
