"""What the operator wishes in its answers, and how long steps are said to take."""

import json
from pathlib import Path
from typing import Any

import pytest

from goodput_operator.worker import goodput_worker
from goodput_operator.worker.goodput_worker import Worker
from tests.unit.worker.endpoint import Endpoint
from tests.unit.worker.test_checkpoint import save


def answer(endpoint: Endpoint, **fields: Any) -> None:
    endpoint.answer = json.dumps({"durableStep": None, **fields}).encode()


def test_interval_is_applied_at_the_next_save(endpoint: Endpoint, tmp_path: Path) -> None:
    worker = Worker(progress_url=endpoint.url, directory=tmp_path, interval_seconds=600)
    answer(endpoint, checkpointIntervalSeconds=0.001)
    worker.report_durable(1)
    assert worker.interval_seconds == 600
    assert not worker.should_checkpoint(2), "not before the interval that runs is over"
    save(worker, 3)
    assert worker.interval_seconds == 0.001
    answer(endpoint)
    save(worker, 4)
    save(worker, 5)
    assert worker.interval_seconds == 0.001, "absent: it stays"
    worker.close()


@pytest.mark.parametrize("value", [0, -1, "60", True, None, [], float("inf"), float("nan")])
def test_interval_that_makes_no_sense_is_ignored(
    endpoint: Endpoint, tmp_path: Path, value: Any
) -> None:
    worker = Worker(progress_url=endpoint.url, directory=tmp_path, interval_seconds=600)
    answer(endpoint, checkpointIntervalSeconds=value)
    save(worker, 1)
    save(worker, 2)
    assert worker.interval_seconds == 600
    worker.close()


def test_each_request_is_heeded_once(endpoint: Endpoint, tmp_path: Path) -> None:
    worker = Worker(progress_url=endpoint.url, directory=tmp_path)
    assert not worker.should_checkpoint(1)
    answer(endpoint, checkpointRequest=1800000000)
    worker.report_durable(1)
    assert worker.should_checkpoint(2)
    assert worker.should_checkpoint(2), "of the same step, until it is saved"
    save(worker, 2)
    assert not worker.should_checkpoint(2)
    assert not worker.should_checkpoint(3), "answered again, but handled"
    answer(endpoint, checkpointRequest=1800000007)
    worker.report_durable(3)
    assert worker.should_checkpoint(4)
    assert not worker.should_checkpoint(5), "once, even if it was not saved"
    answer(endpoint, checkpointRequest=1800000001)
    worker.report_durable(5)
    assert not worker.should_checkpoint(6), "an older one, of an operator that lags behind"
    worker.close()


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"null", b'{"checkpointRequest": "1"}'])
def test_answers_that_are_not_understood_are_ignored(
    endpoint: Endpoint, tmp_path: Path, body: bytes
) -> None:
    endpoint.answer = body
    worker = Worker(progress_url=endpoint.url, directory=tmp_path)
    assert worker.report_durable(1)
    assert not worker.should_checkpoint(2)
    worker.close()


def test_request_reaches_those_who_save_by_other_means(endpoint: Endpoint) -> None:
    answer(endpoint, checkpointRequest=5)
    worker = Worker(progress_url=endpoint.url)
    worker.report_durable(1)
    assert worker.checkpoint_requested(2)
    worker.report_durable(2)
    assert not worker.checkpoint_requested(2)
    assert not worker.checkpoint_requested(3)
    worker.close()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(goodput_worker, "time", clock)
    return clock


def test_step_time_is_the_mean_without_saves(clock: Clock) -> None:
    worker = Worker()
    worker.report(10)
    assert worker._step_times.mean() is None, "compiling is no step"
    clock.now += 2.0
    worker.report(11)
    with worker.checkpoint(11):
        clock.now += 50.0
        with worker.checkpoint_part_dir(11):
            clock.now += 50.0
    clock.now += 4.0
    worker.report(12)
    worker.report(12)
    assert worker._step_times.mean() == pytest.approx(3.0)


def test_step_time_over_several_steps_a_report(clock: Clock) -> None:
    worker = Worker()
    for step in (0, 10, 20):
        worker.report(step)
        clock.now += 5.0
    assert worker._step_times.mean() == pytest.approx(0.5)


def test_step_time_follows_a_rank_that_becomes_slow(clock: Clock) -> None:
    worker = Worker()
    for step in range(1000):
        worker.report(step)
        clock.now += 1.0 if step < 970 else 9.0
    assert worker._step_times.mean() == pytest.approx(9.0)


def test_step_time_does_not_go_backwards(clock: Clock) -> None:
    worker = Worker()
    for step in (5, 6, 2, 3):
        worker.report(step)
        clock.now += 1.0
    assert worker._step_times.mean() == pytest.approx(1.0)


def test_step_time_that_the_script_measures_wins(endpoint: Endpoint) -> None:
    worker = Worker(progress_url=endpoint.url)
    worker.report(1, step_seconds=0.25)
    worker.close()
    assert endpoint.bodies[0]["stepSeconds"] == 0.25
