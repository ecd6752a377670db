"""When reports reach the status."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import DurableCheckpoint, Progress, TrainingJobStatus
from goodput_operator.progress.recorder import Recorder
from goodput_operator.progress.refusal import Outcome, RefusedError
from goodput_operator.progress.report import Report
from tests.unit.progress.fakes import KEY, Clock, FakeClient, FakeStore, job

INTERVAL = 30.0


def report(step: int, **fields: Any) -> Report:
    known: dict[str, Any] = {"attempt": 1, "role": "worker", "rank": 0, "step": step}
    return Report(**(known | fields))


class World:
    def __init__(self, **changes: Any) -> None:
        self.client, self.clock = FakeClient(), Clock()
        self.returned: list[Mapping[str, Any]] = []
        self.view = job(**changes)
        self.store = FakeStore(self.view)
        self.recorder = Recorder(
            self.client,
            self.store,
            INTERVAL,
            on_applied=self.returned.append,
            clock=self.clock,
            wall_clock=self.clock,
        )

    async def record(self, *reports: Report) -> int | None:
        durable = None
        for each in reports:
            durable = await self.recorder.record(self.view, each)
        return durable

    @property
    def steps(self) -> list[int]:
        return [body["status"]["progress"]["step"] for body in self.client.applied]


async def test_attempts_first_report_first_step_and_last_step_are_written_at_once() -> None:
    world = World()
    await world.record(*(report(step, total_steps=9) for step in range(10)))
    assert world.steps == [0, 1, 9]
    assert world.client.managers == {c.PROGRESS_FIELD_MANAGER}
    assert len(world.returned) == 3, "the store reads its own writes"


async def test_other_progress_is_written_once_per_interval() -> None:
    world = World()
    await world.record(report(0), report(1), report(2), report(3))
    await world.recorder.flush(only_due=True)
    assert world.steps == [0, 1]
    world.clock.now += INTERVAL
    await world.recorder.flush(only_due=True)
    await world.recorder.flush(only_due=True)
    assert world.steps == [0, 1, 3]


async def test_unchanged_progress_is_not_written() -> None:
    world = World()
    for _ in range(5):
        await world.record(report(1, loss=0.5))
        world.clock.now += INTERVAL
        await world.recorder.flush(only_due=True)
    assert world.steps == [1]


async def test_durable_step_is_written_before_the_answer() -> None:
    world = World()
    await world.record(report(1), report(2))
    assert await world.record(report(3, checkpoint_step=3)) == 3
    assert world.steps == [1, 3]
    assert world.client.applied[-1]["status"]["checkpoint"]["step"] == 3


async def test_body_holds_both_fields_and_the_version() -> None:
    status = TrainingJobStatus(
        attempt=1,
        progress=Progress(attempt=1, step=4, reported_at="2027-01-15T08:00:00Z"),
        checkpoint=DurableCheckpoint(step=3, attempt=1, saved_at="2027-01-15T08:00:00Z"),
    )
    world = World(status=status)
    await world.record(report(9, total_steps=9))
    body = world.client.applied[-1]
    assert body["metadata"] == {
        "name": KEY.name,
        "namespace": KEY.namespace,
        "resourceVersion": "1",
    }
    assert body["status"]["progress"]["step"] == 9
    assert body["status"]["checkpoint"]["step"] == 3, "known from before a restart, and kept"


async def test_durable_step_that_cannot_be_written_is_not_confirmed() -> None:
    world = World()
    await world.record(report(1))
    world.client.failing = True
    with pytest.raises(RefusedError, match="checkpointStep: 2") as refused:
        await world.record(report(2, checkpoint_step=2))
    assert refused.value.status == 503
    with pytest.raises(RefusedError, match="checkpointStep: 2"):
        await world.record(report(2, checkpoint_step=2))
    world.client.failing = False
    assert await world.record(report(2, checkpoint_step=2)) == 2


async def test_durable_step_that_cannot_be_written_is_tried_again_by_itself() -> None:
    world = World()
    await world.record(report(1))
    world.client.failing = True
    with pytest.raises(RefusedError):
        await world.record(report(2, checkpoint_step=2))
    await world.recorder.flush()
    world.client.failing = False
    world.clock.now += INTERVAL
    await world.recorder.flush(only_due=True)
    assert world.client.applied[-1]["status"]["checkpoint"]["step"] == 2


async def test_progress_that_cannot_be_written_is_accepted_and_written_later() -> None:
    world = World()
    world.client.failing = True
    assert await world.record(report(1)) is None
    world.client.failing = False
    world.clock.now += INTERVAL
    await world.recorder.flush(only_due=True)
    assert world.steps == [1]


async def test_same_durable_step_from_many_requests_is_written_once() -> None:
    world = World()
    answers = await asyncio.gather(*(world.record(report(5, checkpoint_step=5)) for _ in range(9)))
    assert set(answers) == {5}
    assert world.steps == [5]


async def test_deleted_job_is_gone_and_forgotten() -> None:
    world = World()
    world.client.job_uid = None
    with pytest.raises(RefusedError) as refused:
        await world.record(report(1))
    assert refused.value.outcome is Outcome.GONE
    assert len(world.recorder) == 0


async def test_another_job_of_the_same_name_is_not_written_to() -> None:
    """The store does not know yet that the job was deleted and created again."""
    world = World()
    world.client.job_uid, world.client.version = "another", 50
    with pytest.raises(RefusedError) as refused:
        await world.record(report(1))
    assert refused.value.outcome is Outcome.GONE
    assert world.client.applied == []


async def test_change_by_the_reconciler_meanwhile_does_not_stop_a_write() -> None:
    world = World()
    world.client.version = 7
    await world.record(report(1))
    assert world.steps == [1]


async def test_job_that_left_the_store_is_forgotten() -> None:
    world = World()
    await world.record(report(1))
    world.store.view = None
    await world.recorder.flush()
    assert len(world.recorder) == 0


async def test_job_of_the_same_name_starts_anew() -> None:
    world = World()
    await world.record(report(50, checkpoint_step=50))
    world.view = world.store.view = job(uid="another", resource_version="9")
    world.client.job_uid, world.client.version = "another", 9
    assert await world.record(report(0)) is None
    assert "checkpoint" not in world.client.applied[-1]["status"]


async def test_older_attempt_is_refused_after_a_restart_of_the_operator() -> None:
    progress = Progress(attempt=3, step=40, reported_at="2027-01-15T08:00:00Z")
    world = World(status=TrainingJobStatus(attempt=3, progress=progress))
    with pytest.raises(RefusedError, match="attempt: 2 is over"):
        await world.record(report(99, attempt=2))
    assert world.client.applied == []
