"""Preemption of a real process: what was done by SIGTERM is saved, and reported, in the grace."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from goodput_operator.worker import goodput_worker
from tests.unit.worker.endpoint import Endpoint
from tests.unit.worker.test_checkpoint import saved

SCRIPT = """
import sys, time
from goodput_worker import Worker
step_seconds, save_seconds = map(float, sys.argv[1:])
worker = Worker.from_env()
worker.watch_sigterm()
found = worker.resume()
start = found.step if found else 0
for step in range(start + 1, 1_000_000):
    began = time.monotonic()
    print("begin", step, flush=True)
    while time.monotonic() < began + step_seconds:  # a sleep would be no step of its own
        time.sleep(0.01)
    worker.report(step)
    print("done", step, flush=True)
    if worker.should_checkpoint(step):
        print("save", step, flush=True)
        with worker.checkpoint(step) as path:
            time.sleep(save_seconds)
            (path / "state").write_text(str(step))
    if worker.stop_requested:
        sys.exit(143)
"""


class Rank:
    """One rank in a process of its own."""

    def __init__(
        self, folder: Path, url: str, step: float = 0.3, save: float = 0.0, **variables: str
    ) -> None:
        self.directory = folder / "job"
        self.out = folder / "out"
        script = folder / "script.py"
        script.write_text(SCRIPT)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(goodput_worker.__file__).parent),
            "GOODPUT_CHECKPOINT_DIR": str(self.directory),
            "GOODPUT_ATTEMPT": "1",
            "GOODPUT_PROGRESS_URL": url,
            "GOODPUT_CHECKPOINT_GRACE_SECONDS": "10",
            **variables,
        }
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(step), str(save)], env=environment, stdout=out
            )

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + 60
        while line not in self.lines():
            assert time.monotonic() < deadline, self.lines()
            assert self.process.poll() is None
            time.sleep(0.01)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def last_done(self) -> int:
        return max(int(line.split()[1]) for line in self.lines() if line.startswith("done"))


Start = Callable[..., Rank]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start_rank(url: str, **options: float | str) -> Rank:
            rank = Rank(tmp_path, url, **options)  # type: ignore[arg-type]
            stack.callback(rank.process.wait)
            stack.callback(rank.process.kill)
            return rank

        yield start_rank


def reported(endpoint: Endpoint) -> int:
    return max((body.get("checkpointStep", 0) for body in endpoint.bodies), default=0)


def test_sigterm_in_the_middle_of_a_step_loses_no_step(start: Start, endpoint: Endpoint) -> None:
    rank = start(endpoint.url)
    rank.wait_for("begin 3")
    rank.terminate()
    assert rank.process.wait(60) == 143
    assert rank.last_done() == 3, "the step that was under way is finished, no other begun"
    assert saved(rank.directory) == [(3, 1)]
    assert reported(endpoint) == 3


def test_sigterm_during_a_save_saves_once(start: Start, endpoint: Endpoint) -> None:
    rank = start(endpoint.url, step=0.05, save=1.0, GOODPUT_CHECKPOINT_INTERVAL_SECONDS="0.000001")
    rank.wait_for("save 2")
    time.sleep(0.1)
    rank.terminate()
    assert rank.process.wait(60) == 143
    assert rank.last_done() == 2
    assert rank.lines().count("save 2") == 1
    assert saved(rank.directory) == [(1, 1), (2, 1)]
    assert reported(endpoint) == 2


def test_second_sigterm_disturbs_nothing(start: Start, endpoint: Endpoint) -> None:
    rank = start(endpoint.url, save=1.0)
    rank.wait_for("begin 2")
    rank.terminate()
    rank.wait_for("save 2")
    rank.terminate()
    assert rank.process.wait(60) == 143
    assert saved(rank.directory) == [(2, 1)]
    assert reported(endpoint) == 2


def test_endpoint_that_comes_back_within_the_grace_is_told(
    start: Start, endpoint: Endpoint
) -> None:
    endpoint.statuses = [503]
    rank = start(endpoint.url, GOODPUT_CHECKPOINT_GRACE_SECONDS="40")
    rank.wait_for("begin 2")
    rank.terminate()
    rank.wait_for("save 2")
    back = threading.Timer(8.0, setattr, [endpoint, "statuses", [200]])
    back.start()
    assert rank.process.wait(60) == 143
    back.join()
    assert endpoint.statuses == [200], "it waited longer than a save does in training"
    assert endpoint.bodies[-1]["checkpointStep"] == 2


def test_without_an_endpoint_it_is_saved_all_the_same(start: Start) -> None:
    began = time.monotonic()
    rank = start("http://127.0.0.1:9/", GOODPUT_CHECKPOINT_GRACE_SECONDS="6")
    rank.wait_for("begin 2")
    rank.terminate()
    assert rank.process.wait(60) == 143
    assert saved(rank.directory) == [(2, 1)]
    assert time.monotonic() - began < 40


def test_attempt_after_a_preemption_repeats_no_step(start: Start, endpoint: Endpoint) -> None:
    rank = start(endpoint.url, step=0.1)
    rank.wait_for("begin 4")
    rank.terminate()
    assert rank.process.wait(60) == 143
    last = rank.last_done()
    again = start(endpoint.url, step=0.1, GOODPUT_ATTEMPT="2", GOODPUT_RESUME_STEP=str(last))
    again.wait_for(f"done {last + 1}")
    again.terminate()
    assert again.process.wait(60) == 143
    assert again.lines()[0] == f"begin {last + 1}"
