"""Two attempts at once on one directory, in any order of their file operations, with crashes.

A scheduler lets one thread run at a time and chooses at each file operation which goes on. A thread
that crashes does nothing more, as a process that was killed.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput_operator.worker import goodput_worker
from goodput_operator.worker.goodput_worker import (
    Checkpoint,
    Worker,
    _content_damage,
    complete_checkpoints,
)

OPERATIONS = ("rename", "link", "unlink", "rmdir", "mkdir", "fsync", "scandir", "listdir", "walk")
FOREVER = float("inf")


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Process:
    """A thread that stands for a process; ``dies_after`` file operations, if ever."""

    run: Callable[[], None]
    dies_after: int | None = None
    operations: int = 0
    dead: bool = False
    may_run: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    paused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: bool = False
    error: Exception | None = None
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        self.may_run.acquire()
        try:
            self.run()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error
        self.ended = True
        self.paused.release()

    def go_on(self) -> None:
        """To its next file operation, or its end."""
        self.may_run.release()
        assert self.paused.acquire(timeout=20), "a process hangs"

    def at_operation(self) -> None:
        if not self.dead:
            self.paused.release()
            self.may_run.acquire()
            self.operations += 1
            self.dead = self.dies_after is not None and self.operations > self.dies_after
        if self.dead:
            raise Killed


@contextmanager
def scheduled(processes: list[Process]) -> Iterator[None]:
    """Every file operation of these processes' threads asks first."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            for process in processes:
                if process.thread is threading.current_thread():
                    process.at_operation()
            return original(*args, **options)

        return operation

    with ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(mock.patch.object(os, name, wrap(getattr(os, name))))
        yield


def run_all(processes: list[Process], choices: list[int]) -> None:
    with scheduled(processes):
        for process in processes:
            process.start()
        turn = 0
        while left := [process for process in processes if not process.ended]:
            choice = choices[turn % len(choices)] if choices else 0
            left[choice % len(left)].go_on()
            turn += 1


def content(step: int, attempt: int) -> str:
    return f"step {step} of attempt {attempt}" * 10


def save(worker: Worker, step: int) -> None:
    with worker.checkpoint(step) as path:
        (path / "a").write_text(content(step, worker.attempt))
        (path / "b").write_text("b")


def is_intact(found: Checkpoint) -> bool:
    text = (found.path / "a").read_text()
    return text == content(found.step, found.attempt) and not _content_damage(found.path, FOREVER)


@dataclass
class History:
    """What the test saw."""

    published: set[tuple[int, int]] = field(default_factory=set)
    """Step and attempt of what was saved, as its process was told."""
    before: set[tuple[int, int]] = field(default_factory=set)
    """Of these, what was saved before the newer attempt began."""
    chosen: list[tuple[int, int] | None] = field(default_factory=list)


def older(directory: Path, history: History, steps: list[int], keep: int) -> Callable[[], None]:
    """Rank 0 of attempt 1 on a partitioned node: it never hears of attempt 2."""
    worker = Worker(directory=directory, attempt=1, keep=keep)

    def run() -> None:
        for step in steps:
            save(worker, step)
            history.published.add((step, 1))

    return run


def newer(directory: Path, history: History, advances: list[int], keep: int) -> Callable[[], None]:
    worker = Worker(directory=directory, attempt=2, keep=keep)

    def run() -> None:
        history.before = set(history.published)
        found = worker.resume()
        history.chosen.append((found.step, found.attempt) if found else None)
        if found:
            assert found.attempt == 1
            assert is_intact(found)
        step = found.step if found else 0
        for advance in advances:
            if found:
                assert is_intact(found), "still being read"
            step += advance
            try:
                save(worker, step)
            finally:
                found = None
            history.published.add((step, 2))

    return run


def check(directory: Path, history: History, keep: int) -> None:
    """A third attempt finds a directory in order, and nothing is lost."""
    complete = complete_checkpoints(directory)
    assert all(is_intact(found) for found in complete)
    newest = max((step for step, _ in history.published), default=0)
    third = Worker(directory=directory, attempt=3, keep=keep)
    found = third.resume()
    assert (found.step if found else 0) >= newest
    for advance in range(1, keep + 1):
        save(third, (found.step if found else 0) + advance)
    left = [path for path in directory.glob("attempt-*/*") if path.name != "resume.json"]
    assert {path.parent.name for path in left} == {"attempt-3"}, "nothing is left over"
    assert len(left) == keep


steps = st.lists(st.integers(1, 60), max_size=4, unique=True).map(sorted)
dies = st.none() | st.integers(0, 60)


@settings(max_examples=80, deadline=None)
@given(
    first=st.lists(st.integers(61, 90), max_size=2, unique=True).map(sorted),
    partitioned=steps,
    advances=st.lists(st.integers(1, 9), max_size=3),
    choices=st.lists(st.integers(0, 1), max_size=60),
    dying=st.tuples(dies, dies),
    keep=st.integers(1, 3),
)
def test_any_order_of_two_attempts(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[int],
    partitioned: list[int],
    advances: list[int],
    choices: list[int],
    dying: tuple[int | None, int | None],
    keep: int,
) -> None:
    directory = tmp_path_factory.mktemp("job")
    history = History()
    ahead = [step + 100 for step in partitioned]
    older(directory, history, first, keep)()
    processes = [
        Process(older(directory, history, ahead, keep), dying[0]),
        Process(newer(directory, history, advances, keep), dying[1]),
    ]
    run_all(processes, choices)
    assert processes[1].error is None
    # The older attempt may find that its draft was cleaned up: it is over.
    assert isinstance(processes[0].error, FileNotFoundError | None)
    for choice in history.chosen:
        assert (choice or (0, 0)) >= max(history.before, default=(0, 0))
    check(directory, history, keep)


@settings(max_examples=40, deadline=None)
@given(
    dies_after=st.integers(0, 80),
    late=st.lists(st.integers(200, 300), min_size=1, max_size=3, unique=True).map(sorted),
    keep=st.integers(1, 2),
)
def test_choice_stays_though_rank_0_dies_and_old_ranks_publish(
    tmp_path_factory: pytest.TempPathFactory, dies_after: int, late: list[int], keep: int
) -> None:
    """Rank 0 dies anywhere in its resume; its old self publishes more; it and rank 1 agree."""
    directory = tmp_path_factory.mktemp("job")
    history = History()
    older(directory, history, [10, 20, 30], keep)()
    run_all([Process(newer(directory, history, [], keep), dies_after)], [])
    older(directory, history, late, keep)()
    again = Worker(directory=directory, attempt=2, keep=keep).resume()
    other = Worker(directory=directory, attempt=2, rank=1, world_size=2, keep=keep).resume()
    assert again is not None
    assert again == other
    assert is_intact(again)
    if history.chosen:
        assert history.chosen == [(again.step, again.attempt)]


@settings(max_examples=40, deadline=None)
@given(
    keep=st.integers(2, 3),
    steps=st.lists(st.integers(1, 99), min_size=2, max_size=6, unique=True).map(sorted),
    saves=st.integers(0, 4),
)
def test_corrupt_newest_never_costs_its_fallback(
    tmp_path_factory: pytest.TempPathFactory, keep: int, steps: list[int], saves: int
) -> None:
    """At any time, though the newest one turns out corrupt, one before it can be resumed from."""
    directory = tmp_path_factory.mktemp("job")
    older(directory, History(), steps, keep)()
    (directory / "attempt-1" / f"step-{steps[-1]:010d}" / "a").write_text(
        content(steps[-1], 1).upper()
    )
    second = Worker(directory=directory, attempt=2, keep=keep)
    found = second.resume()
    assert found is not None
    assert found.step == steps[-2]
    for number in range(1, saves + 1):
        save(second, found.step + number)
        sound = [each for each in complete_checkpoints(directory) if is_intact(each)]
        assert len(sound) >= min(keep, number + 1), "the corrupt one does not count"
    newest = found.step + saves
    third = Worker(directory=directory, attempt=3, keep=keep).resume()
    assert third is not None
    assert third.step == newest
    assert goodput_worker._damage(third.path, newest) is None
