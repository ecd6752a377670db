"""Damage: what is not as it was saved is never resumed from, and said with the file's name."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goodput_operator.worker import goodput_worker
from goodput_operator.worker.goodput_worker import MANIFEST, PART_MANIFEST, RESUME_FILE, Worker
from tests.unit.worker.endpoint import Endpoint
from tests.unit.worker.test_checkpoint import save, saved

Damage = Callable[[Path], object]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_worker, "LOWER_BOUND_WAIT", 0.1)


def flip(file: Path, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def state_of(checkpoint: Path) -> Path:
    return checkpoint / "shards" / "0"


DAMAGES: dict[str, tuple[Damage, str]] = {
    "bit flipped": (lambda path: flip(state_of(path), 11), "shards/0 has CRC-32 "),
    "truncated": (lambda path: state_of(path).write_text("st"), "shards/0 has 2 bytes"),
    "missing": (lambda path: state_of(path).unlink(), "shards/0 cannot be found"),
    "empty manifest": (
        lambda path: (path / MANIFEST).write_text(""),
        "checkpoint.json is missing, or no whole manifest",
    ),
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "checkpoint.json is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_newest_falls_back_to_the_one_before(
    tmp_path: Path, endpoint: Endpoint, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    first = Worker(directory=tmp_path)
    save(first, 10)
    save(first, 20)
    act, said = DAMAGES[damage]
    act(tmp_path / "attempt-1" / "step-0000000020")
    second = Worker(directory=tmp_path, attempt=2, resume_step=20, progress_url=endpoint.url)
    found = second.resume()
    second.close()
    assert found is not None
    assert found.step == 10
    assert f"step 20 is damaged: {tmp_path}" in caplog.text
    assert said in caplog.text
    assert "step 20 was reported durable" in caplog.text
    body = endpoint.bodies[-1]
    assert (body["corruptStep"], body["resumedFromStep"], body["checkpointStep"]) == (20, 10, 10)


def test_every_single_flipped_bit_is_found(tmp_path: Path) -> None:
    save(Worker(directory=tmp_path), 10)
    path = tmp_path / "attempt-1" / "step-0000000010"
    for bit in range(8 * state_of(path).stat().st_size):
        flip(state_of(path), bit)
        assert goodput_worker._content_damage(path, time.monotonic() + 60) is not None
        flip(state_of(path), bit)
    assert goodput_worker._content_damage(path, time.monotonic() + 60) is None


def test_all_damaged_begins_anew(
    tmp_path: Path, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    save(Worker(directory=tmp_path), 10)
    flip(state_of(tmp_path / "attempt-1" / "step-0000000010"))
    second = Worker(directory=tmp_path, attempt=2, resume_step=10, progress_url=endpoint.url)
    assert second.resume() is None
    second.close()
    assert "step none (damaged ones: 1)" in caplog.text
    body = endpoint.bodies[-1]
    assert (body["corruptStep"], body["resumedFromStep"], body["checkpointStep"]) == (10, 0, 0)


def test_file_that_cannot_be_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = Worker(directory=tmp_path)
    save(first, 10)
    save(first, 20)
    checksum = goodput_worker._checksum

    def fail(path: Path, deadline: float) -> str | None:
        if "step-0000000020" in str(path):
            raise OSError(5, "Input/output error", str(path))
        return checksum(path, deadline)

    monkeypatch.setattr(goodput_worker, "_checksum", fail)
    found = Worker(directory=tmp_path, attempt=2).resume()
    assert found is not None
    assert found.step == 10
    assert "Input/output error" in caplog.text
    assert (10, 1) in saved(tmp_path)
    assert (20, 1) in saved(tmp_path), "it may be readable again later"


def test_all_ranks_pass_over_what_rank_0_found_damaged(tmp_path: Path) -> None:
    first = Worker(directory=tmp_path)
    save(first, 10)
    save(first, 20)
    flip(state_of(tmp_path / "attempt-1" / "step-0000000020"))
    for rank in (0, 1, 0):
        found = Worker(directory=tmp_path, attempt=2, rank=rank, world_size=2).resume()
        assert found is not None
        assert found.step == 10
    choice = json.loads((tmp_path / "attempt-2" / RESUME_FILE).read_text())
    assert choice["damaged"] == [{"step": 20, "checkpoint": "attempt-1/step-0000000020"}]


def test_only_what_is_chosen_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Worker(directory=tmp_path)
    save(first, 10)
    save(first, 20)
    read: list[str] = []
    checksum = goodput_worker._checksum

    def spy(path: Path, deadline: float) -> str | None:
        read.append(str(path.relative_to(tmp_path)))
        return checksum(path, deadline)

    monkeypatch.setattr(goodput_worker, "_checksum", spy)
    Worker(directory=tmp_path, attempt=2).resume()
    Worker(directory=tmp_path, attempt=2, rank=1).resume()
    assert read == ["attempt-1/step-0000000020/shards/0"]


def rewrite(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def test_manifest_of_an_older_worker_is_taken(tmp_path: Path) -> None:
    save(Worker(directory=tmp_path, job="team-a/digits"), 10)
    path = tmp_path / "attempt-1" / "step-0000000010"
    manifest = json.loads((path / MANIFEST).read_text())
    old = {name: manifest[name] for name in ("step", "attempt", "files")}
    (path / MANIFEST).write_text(json.dumps(old))
    found = Worker(directory=tmp_path, attempt=2, job="team-a/digits").resume()
    assert found is not None
    assert found.step == 10


def test_checkpoint_of_another_job_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(Worker(directory=tmp_path, job="team-a/digits"), 10)
    save(Worker(directory=tmp_path, attempt=2, job="team-b/digits"), 20)
    found = Worker(directory=tmp_path, attempt=3, job="team-a/digits").resume()
    assert found is not None
    assert found.step == 10
    assert "step-0000000020 is not used: it is of another job than team-a/digits" in caplog.text
    copied = Worker(directory=tmp_path, attempt=4, job=None).resume()
    assert copied is not None
    assert copied.step == 20


def test_checkpoint_of_another_job_is_neither_counted_nor_deleted(tmp_path: Path) -> None:
    theirs = Worker(directory=tmp_path, attempt=1, job="team-b/digits")
    for step in (100, 200, 300):
        save(theirs, step)
    mine = Worker(directory=tmp_path, attempt=2, job="team-a/digits")
    for step in (1, 2, 3):
        save(mine, step)
    assert saved(tmp_path) == [(2, 2), (3, 2), (200, 1), (300, 1)]


def test_job_is_that_of_the_environment(tmp_path: Path) -> None:
    env = {
        "GOODPUT_JOB": "digits",
        "GOODPUT_NAMESPACE": "team-a",
        "GOODPUT_CHECKPOINT_DIR": str(tmp_path),
    }
    save(Worker.from_env(env), 10)
    path = tmp_path / "attempt-1" / "step-0000000010"
    assert json.loads((path / MANIFEST).read_text())["job"] == "team-a/digits"
    assert Worker.from_env({**env, "GOODPUT_JOB": "letters"}).resume() is None
    assert Worker.from_env({**env, "GOODPUT_JOB": "letters"}, job=None).resume() is not None


def test_damage_in_one_ranks_part_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = [Worker(directory=tmp_path, rank=rank, world_size=2) for rank in range(2)]
    read: list[Path] = []
    checksum = goodput_worker._checksum

    def spy(path: Path, deadline: float) -> str | None:
        read.append(path)
        return checksum(path, deadline)

    with ranks[0].checkpoint(5, sharded=True):
        for rank in ranks:
            with rank.checkpoint_part_dir(5) as part:
                (part / "shard").write_text(f"of {rank.rank}")
        monkeypatch.setattr(goodput_worker, "_checksum", spy)
    assert {path.name for path in read} == {PART_MANIFEST}, "each rank has read its own already"
    flip(tmp_path / "attempt-1" / "step-0000000005" / "rank-00001" / "shard")
    assert Worker(directory=tmp_path, attempt=2).resume() is None
    assert "rank-00001/shard has CRC-32" in caplog.text


def test_checksums_have_a_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(Worker(directory=tmp_path), 10)
    hurried = Worker(directory=tmp_path, attempt=2, verify_seconds=1e-9)
    assert hurried.resume() is not None
    assert "time was too short to check 1 of 1 files (shards/0, ...)" in caplog.text


def test_checksums_can_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(Worker(directory=tmp_path, verify_seconds=0), 10)
    path = tmp_path / "attempt-1" / "step-0000000010"
    assert "crc32" not in json.loads((path / MANIFEST).read_text())
    save(Worker(directory=tmp_path), 20)
    flip(state_of(tmp_path / "attempt-1" / "step-0000000020"))
    with caplog.at_level(logging.WARNING):
        found = Worker(directory=tmp_path, attempt=2, verify_seconds=0).resume()
    assert found is not None
    assert found.step == 20


def test_checkpoint_that_vanishes_while_it_is_looked_at_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Worker(directory=tmp_path)
    save(first, 10)
    save(first, 20)
    check = goodput_worker._content_damage

    def late(path: Path, deadline: float) -> str | None:
        if path.name == "step-0000000020":
            goodput_worker._discard(path)
        return check(path, deadline)

    monkeypatch.setattr(goodput_worker, "_content_damage", late)
    found = Worker(directory=tmp_path, attempt=2).resume()
    assert found is not None
    assert found.step == 10


def test_manifest_whose_lists_differ_is_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(Worker(directory=tmp_path), 10)
    rewrite(tmp_path / "attempt-1" / "step-0000000010", crc32={"shards/1": "00000000"})
    assert Worker(directory=tmp_path, attempt=2).resume() is None
    assert "checksums of other files" in caplog.text
