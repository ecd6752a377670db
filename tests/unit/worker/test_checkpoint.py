"""Saving: what is published is whole, and what is deleted is superfluous."""

import json
import os
import threading
from pathlib import Path

import pytest

from goodput_operator.worker.goodput_worker import (
    MANIFEST,
    CheckpointError,
    Worker,
    complete_checkpoints,
)


def save(worker: Worker, step: int, content: str = "state") -> None:
    with worker.checkpoint(step) as path:
        (path / "shards").mkdir()
        (path / "shards" / "0").write_text(content)


def saved(directory: Path) -> list[tuple[int, int]]:
    return [(found.step, found.attempt) for found in complete_checkpoints(directory)]


def test_checkpoint_appears_whole_below_its_attempt(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path, attempt=3)
    with worker.checkpoint(120) as path:
        (path / "state").write_text("x" * 10)
        assert saved(tmp_path) == []
        assert path.parent == tmp_path / "attempt-3"
    final = tmp_path / "attempt-3" / "step-0000000120"
    assert (final / "state").read_text() == "x" * 10
    assert json.loads((final / MANIFEST).read_text())["files"] == {"state": 10}
    assert [path.name for path in final.parent.iterdir()] == [final.name]


def test_all_is_on_disk_before_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[str] = set()
    missed: list[set[str]] = []
    fsync, rename = os.fsync, os.rename

    def flush(descriptor: int) -> None:
        fsync(descriptor)
        flushed.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def publish(source: Path, target: Path) -> None:
        if target.name.startswith("step-"):
            missed.append({str(path) for path in [source, *source.rglob("*")]} - flushed)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", publish)
    save(Worker(directory=tmp_path), 5)
    assert missed == [set()]
    assert str(tmp_path / "attempt-1") in flushed, "and the rename itself"


def test_failed_save_publishes_nothing_and_is_seen(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path)

    def fail() -> None:
        with worker.checkpoint(5) as path:
            (path / "state").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert list((tmp_path / "attempt-1").iterdir()) == []
    save(worker, 5)
    assert saved(tmp_path) == [(5, 1)]


@pytest.mark.parametrize("damage", ["truncated", "missing", "no manifest", "other step"])
def test_damaged_checkpoint_is_not_complete(tmp_path: Path, damage: str) -> None:
    worker = Worker(directory=tmp_path)
    save(worker, 5)
    final = tmp_path / "attempt-1" / "step-0000000005"
    if damage == "truncated":
        (final / "shards" / "0").write_text("st")
    elif damage == "missing":
        (final / "shards" / "0").unlink()
    elif damage == "no manifest":
        (final / MANIFEST).unlink()
    else:
        final.rename(final.with_name("step-0000000006"))
    assert saved(tmp_path) == []


def test_damaged_checkpoint_can_be_saved_again(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path)
    save(worker, 5)
    (tmp_path / "attempt-1" / "step-0000000005" / "shards" / "0").unlink()
    save(worker, 5)
    assert saved(tmp_path) == [(5, 1)]


def test_same_step_is_saved_once(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path)
    save(worker, 5, "first")
    save(worker, 5, "second")
    path = tmp_path / "attempt-1" / "step-0000000005" / "shards" / "0"
    assert path.read_text() == "first"


def test_newest_are_kept_over_all_attempts(tmp_path: Path) -> None:
    first = Worker(directory=tmp_path, attempt=1, keep=2)
    for step in (10, 20, 30):
        save(first, step)
    assert saved(tmp_path) == [(20, 1), (30, 1)]
    second = Worker(directory=tmp_path, attempt=2, keep=2)
    second.resume()
    assert saved(tmp_path) == [(20, 1), (30, 1)], "nothing goes before a newer one is complete"
    save(second, 40)
    assert saved(tmp_path) == [(30, 1), (40, 2)]


def test_what_was_resumed_from_stays_until_a_newer_one_is_complete(tmp_path: Path) -> None:
    save(Worker(directory=tmp_path, attempt=1, keep=1), 10)
    second = Worker(directory=tmp_path, attempt=2, keep=1)
    second.resume()
    with pytest.raises(OSError, match="disk full"), second.checkpoint(20):
        raise OSError("disk full")
    assert saved(tmp_path) == [(10, 1)]
    save(second, 20)
    assert saved(tmp_path) == [(20, 2)]


def test_superseded_attempt_deletes_nothing(tmp_path: Path) -> None:
    partitioned = Worker(directory=tmp_path, attempt=1, keep=1)
    save(partitioned, 10)
    newer = Worker(directory=tmp_path, attempt=2, keep=1)
    found = newer.resume()
    assert found is not None
    for step in (11, 12, 13):
        save(partitioned, step)
    assert found.path.is_dir(), "attempt 2 may still be reading it"


def test_checkpoint_just_published_is_never_deleted(tmp_path: Path) -> None:
    """Not even if ranks that survived on a partitioned node have got further."""
    partitioned = Worker(directory=tmp_path, attempt=1, keep=1)
    save(partitioned, 10)
    newer = Worker(directory=tmp_path, attempt=2, keep=1)
    newer.resume()
    save(partitioned, 50)
    save(newer, 11)
    assert (11, 2) in saved(tmp_path)


def test_leftovers_of_older_attempts_are_deleted(tmp_path: Path) -> None:
    older = Worker(directory=tmp_path, attempt=1)
    save(older, 10)
    (tmp_path / "attempt-1" / ".step-0000000020.partial").mkdir()
    save(Worker(directory=tmp_path, attempt=2), 30)
    assert sorted(path.name for path in (tmp_path / "attempt-1").iterdir()) == ["step-0000000010"]


def test_rank_that_was_replaced_cannot_publish_what_was_cleaned_up(tmp_path: Path) -> None:
    older = Worker(directory=tmp_path, attempt=1)

    def save_while_replaced() -> None:
        with older.checkpoint(20) as path:
            (path / "state").write_text("whole")
            save(Worker(directory=tmp_path, attempt=2), 30)

    with pytest.raises(FileNotFoundError):
        save_while_replaced()
    assert saved(tmp_path) == [(30, 2)]


def test_other_ranks_discard(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path, rank=1, world_size=2)
    with worker.checkpoint(5) as path:
        (path / "state").write_text("a replica's")
    assert not path.exists()
    assert saved(tmp_path) == []


def test_parts_of_all_ranks_are_published_together(tmp_path: Path) -> None:
    ranks = [Worker(directory=tmp_path, rank=rank, world_size=3) for rank in range(3)]

    def write(worker: Worker) -> None:
        with worker.checkpoint_part_dir(5) as part:
            (part / "shard").write_text(str(worker.rank))

    others = [threading.Timer(0.1 * rank.rank, write, [rank]) for rank in ranks[1:]]
    for other in others:
        other.start()
    with ranks[0].checkpoint(5, sharded=True) as path:
        (path / "shared").write_text("once")
        write(ranks[0])
    for other in others:
        other.join()
    (found,) = complete_checkpoints(tmp_path)
    parts = sorted(str(path.relative_to(found.path)) for path in found.path.rglob("shard"))
    assert parts == ["rank-00000/shard", "rank-00001/shard", "rank-00002/shard"]
    assert (found.path / "shared").read_text() == "once"


def test_missing_part_publishes_nothing(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path, world_size=2, timeout_seconds=0.2)
    with pytest.raises(CheckpointError, match=r"ranks \[1\]"), worker.checkpoint(5, sharded=True):
        pass
    assert saved(tmp_path) == []


def test_interval(tmp_path: Path) -> None:
    worker = Worker(directory=tmp_path, interval_seconds=0.0)
    assert worker.should_checkpoint(5)
    save(worker, 5)
    assert not worker.should_checkpoint(5), "that state is saved"
    assert worker.should_checkpoint(6)
    assert not Worker(directory=tmp_path, interval_seconds=60).should_checkpoint(5)


def test_at_least_one_is_kept() -> None:
    with pytest.raises(ValueError, match="keep: 0"):
        Worker(keep=0)
