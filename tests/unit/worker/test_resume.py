"""Resuming: every rank of an attempt begins from the same, newest complete checkpoint."""

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.worker import goodput_worker
from goodput_operator.worker.goodput_worker import RESUME_FILE, Checkpoint, ResumeError, Worker
from tests.unit.worker.test_checkpoint import save, saved


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_worker, "LOWER_BOUND_WAIT", 0.1)


def worker(directory: Path, attempt: int, rank: int = 0, **options: float) -> Worker:
    return Worker(
        directory=directory,
        attempt=attempt,
        rank=rank,
        world_size=2,
        resume_step=int(options.get("resume_step", 0)),
        timeout_seconds=options.get("timeout_seconds", 5.0),
        keep=10,
    )


def step_of(found: Checkpoint | None) -> int:
    return found.step if found else 0


def test_first_attempt_begins_at_step_0(tmp_path: Path) -> None:
    assert worker(tmp_path, 1).resume() is None
    assert worker(tmp_path, 1, rank=1).resume() is None


def test_newest_complete_checkpoint_is_taken(tmp_path: Path) -> None:
    save(worker(tmp_path, 1), 10)
    save(worker(tmp_path, 2), 20)
    save(worker(tmp_path, 2), 30)
    (tmp_path / "attempt-2" / "step-0000000030" / "shards" / "0").unlink()
    found = worker(tmp_path, 3).resume()
    assert found == Checkpoint(20, tmp_path / "attempt-2" / "step-0000000020", 2)


def test_of_the_same_step_the_newer_attempt_is_taken(tmp_path: Path) -> None:
    save(worker(tmp_path, 1), 10)
    save(worker(tmp_path, 2), 10)
    found = worker(tmp_path, 3).resume()
    assert found is not None
    assert found.attempt == 2


def test_choice_is_fixed_once_per_attempt(tmp_path: Path) -> None:
    partitioned = worker(tmp_path, 1)
    save(partitioned, 10)
    assert step_of(worker(tmp_path, 2).resume()) == 10
    save(partitioned, 99)
    assert step_of(worker(tmp_path, 2, rank=1).resume()) == 10
    assert step_of(worker(tmp_path, 2).resume()) == 10, "rank 0 started again in its attempt"


def test_later_attempts_are_not_looked_at(tmp_path: Path) -> None:
    save(worker(tmp_path, 3), 30)
    assert worker(tmp_path, 2).resume() is None


def test_other_ranks_wait_for_rank_0(tmp_path: Path) -> None:
    save(worker(tmp_path, 1), 10)
    threading.Timer(0.3, worker(tmp_path, 2).resume).start()
    assert step_of(worker(tmp_path, 2, rank=1).resume()) == 10


def test_rank_that_waits_in_vain_says_for_what(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=r"rank 1 waited 0.2 s for rank 0 to write .*resume.json"):
        worker(tmp_path, 2, rank=1, timeout_seconds=0.2).resume()


def test_rank_that_does_not_see_the_checkpoint_does_not_go_on(tmp_path: Path) -> None:
    save(worker(tmp_path, 1), 10)
    worker(tmp_path, 2).resume()
    (tmp_path / "attempt-1" / "step-0000000010" / "shards" / "0").unlink()
    with pytest.raises(ResumeError, match="same volume"):
        worker(tmp_path, 2, rank=1, timeout_seconds=0.2).resume()


def test_durable_checkpoint_that_is_missing_is_said_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(worker(tmp_path, 1), 80)
    assert step_of(worker(tmp_path, 2, resume_step=100).resume()) == 80
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "step 100 was reported durable" in record.message
    assert "step 80" in record.message


def test_lower_bound_may_be_exceeded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(worker(tmp_path, 1), 80)
    assert step_of(worker(tmp_path, 2, resume_step=70).resume()) == 80
    assert not caplog.records


def test_half_written_choice_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "attempt-2"
    folder.mkdir()
    file = folder / RESUME_FILE
    whole = json.dumps({"attempt": 2, "step": None, "checkpoint": None})
    file.write_text(whole[:10])
    threading.Timer(0.2, file.write_text, [whole]).start()
    assert worker(tmp_path, 2, rank=1).resume() is None


def test_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    save(worker(tmp_path, 1), 10)
    assert step_of(worker(tmp_path, 2).resume()) == 10
    assert step_of(worker(tmp_path, 2, rank=1).resume()) == 10


def test_first_writer_of_the_choice_wins(tmp_path: Path) -> None:
    publish: Callable[[Path, str], None] = goodput_worker._publish_once
    publish(tmp_path / RESUME_FILE, "first")
    publish(tmp_path / RESUME_FILE, "second")
    assert (tmp_path / RESUME_FILE).read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == [RESUME_FILE]


attempts = st.lists(
    st.lists(st.integers(min_value=1, max_value=30), max_size=6), min_size=1, max_size=5
)


@given(attempts, st.integers(min_value=1, max_value=3))
def test_no_attempt_begins_before_what_an_earlier_one_saved(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int]], keep: int
) -> None:
    directory = tmp_path_factory.mktemp("job")
    newest = 0
    for attempt, advances in enumerate(runs, start=1):
        rank = Worker(directory=directory, attempt=attempt, keep=keep)
        step = step_of(rank.resume())
        assert step == newest
        for advance in advances:
            step += advance
            save(rank, step)
            newest = step
        assert len(saved(directory)) <= keep
