"""The digits example trains for real: two ranks, one killed, resumed, the same loss curve."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("sklearn")

REPOSITORY = Path(__file__).parents[3]
STEPS, EVERY, BATCH = 40, 8, 64
DEADLINE = 240.0

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Gang:
    """The ranks of one attempt, as the operator would start them; killed when the test ends."""

    def __init__(self, stack: ExitStack, directory: Path, attempt: int, ranks: int = 2) -> None:
        self.logs = directory.parent / f"{directory.name}-{attempt}"
        self.logs.mkdir()
        coordinator = f"127.0.0.1:{free_port()}"
        self.ranks = []
        for rank in range(ranks):
            command = [
                sys.executable,
                str(REPOSITORY / "examples" / "digits" / "train.py"),
                *("--steps", str(STEPS), "--batch", str(BATCH)),
                *("--checkpoint-every", str(EVERY), "--min-accuracy", "0.8"),
            ]
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(REPOSITORY / "operator" / "goodput_operator" / "worker"),
                "GOODPUT_CHECKPOINT_DIR": str(directory),
                "GOODPUT_ATTEMPT": str(attempt),
                "JAX_COORDINATOR_ADDRESS": coordinator,
                "JAX_NUM_PROCESSES": str(ranks),
                "JAX_PROCESS_ID": str(rank),
            }
            out = stack.enter_context((self.logs / f"{rank}.out").open("w"))
            err = stack.enter_context((self.logs / f"{rank}.err").open("w"))
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
            stack.enter_context(process)
            stack.callback(process.kill)
            self.ranks.append(process)

    def wait(self) -> list[int]:
        return [rank.wait(DEADLINE) for rank in self.ranks]

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while max(self.losses(), default=0) < step:
            assert time.monotonic() < deadline, (self.logs / "0.err").read_text()
            time.sleep(0.05)

    def lines(self, rank: int = 0) -> list[dict[str, float]]:
        text = (self.logs / f"{rank}.out").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]

    def losses(self) -> dict[int, float]:
        return {int(line["step"]): line["loss"] for line in self.lines() if "loss" in line}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_killed_rank_ends_the_gang_and_the_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, stack: ExitStack
) -> None:
    whole = Gang(stack, tmp_path / "whole", 1)
    assert whole.wait() == [0, 0], (whole.logs / "0.err").read_text()

    first = Gang(stack, tmp_path / "broken", 1)
    first.wait_for_step(EVERY * 2 + 3)
    first.ranks[1].kill()
    assert first.ranks[0].wait(30) not in (0, None), "the survivor fails instead of hanging"

    second = Gang(stack, tmp_path / "broken", 2)
    assert second.wait() == [0, 0], (second.logs / "0.err").read_text()
    resumed = [int(second.lines(rank)[0]["resumedFromStep"]) for rank in (0, 1)]
    assert resumed[0] == resumed[1]
    assert resumed[0] % EVERY == 0
    assert resumed[0] >= max(first.losses()) - EVERY, "no more is redone than one interval"

    assert sorted(whole.losses()) == list(range(1, STEPS + 1))
    assert sorted(second.losses()) == list(range(resumed[0] + 1, STEPS + 1))
    assert first.losses() | second.losses() == pytest.approx(whole.losses(), abs=1e-5)
    result = json.loads((tmp_path / "broken" / "attempt-2" / "result.json").read_text())
    assert result["accuracy"] >= 0.8


def test_sigterm_on_one_rank_saves_once_and_stops_all(tmp_path: Path, stack: ExitStack) -> None:
    gang = Gang(stack, tmp_path / "stopped", 1)
    gang.wait_for_step(3)
    gang.ranks[1].send_signal(signal.SIGTERM)
    assert gang.wait() == [143, 143]
    stopped = {gang.lines(rank)[-1]["stoppedAtStep"] for rank in (0, 1)}
    assert len(stopped) == 1
    step = int(stopped.pop())
    assert (tmp_path / "stopped" / "attempt-1" / f"step-{step:010d}" / "state.npz").is_file()
