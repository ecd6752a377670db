"""Train on three nodes, kill one in the middle, and see the job resume from its checkpoint.

Exits with 0 only if it did: if the new attempt resumed from a checkpoint no older than the newest
durable one, the loss was counted as infrastructure, and the model reached its accuracy.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from goodput_sandbox.options import SandboxError
from goodput_sandbox.sandbox import Sandbox

from .cluster import JOB, DemoCluster, log_of_operator, prepare
from .frame import Frame, observe
from .report import Loss, outcome, show
from .screen import Screen

NAME = "demo"
NAMESPACE, JOB_NAME = "default", "digits"
POLL_SECONDS = 0.5
PART_DONE, STEPS_BEYOND = 0.4, 10
"""The node is killed in the middle, and this many steps after a checkpoint: there is work to lose.
"""


class DemoError(Exception):
    """The demo did not get as far as it should have; the message says where it stood."""


def main() -> int:
    """Run the demo; its exit code."""
    console = Console(highlight=False)
    sandbox = Sandbox(NAME)
    try:
        with _stopped_in_the_end(sandbox):
            return run(sandbox, console)
    except (DemoError, SandboxError) as error:
        console.print(f"[red]{error}[/red]")
        return 1
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def _stopped_in_the_end(sandbox: Sandbox) -> Iterator[None]:
    try:
        yield
    finally:
        sandbox.down()


def run(sandbox: Sandbox, console: Console) -> int:
    """The whole story, from an empty machine to the table."""
    with Screen(console) as screen:
        cluster = prepare(sandbox, screen.say)
        if not cluster.trained:
            screen.say("Not root: the nodes are simulated, and no training will happen.", "yellow")
        screen.say(f"kubectl apply -f {JOB.relative_to(JOB.parents[2])}")
        sandbox.apply(JOB)
        watch = Watch(sandbox, screen)
        before = watch.until(
            _worth_killing if cluster.trained else _is_running, 300, "a checkpoint, and more steps"
        )
        loss = _kill(cluster, before, screen)
        restarted = watch.until(
            lambda frame: _goes_on(frame, loss, cluster.trained), 240, "the next attempt to train"
        )
        _say_resumed(restarted, screen)
        cluster.finish()
        final = watch.until(lambda frame: frame.over, 600, "the job to end")
        screen.say(f"TrainingJob {JOB_NAME} is {final.phase}")
    result = outcome(
        loss,
        restarted.job.get("status", {}),
        final.job.get("status", {}),
        cluster.accuracy(final.attempt),
    )
    console.print(sandbox.kubectl("get", "trainingjobs"), markup=False)
    return show(console, result, cluster.trained)


class Watch:
    """Looks at the job again and again, and shows what it sees."""

    def __init__(self, sandbox: Sandbox, screen: Screen) -> None:
        self._sandbox, self._screen = sandbox, screen

    def until(self, reached: Callable[[Frame], bool], timeout: float, what: str) -> Frame:
        """The first frame for which this holds. Raises DemoError when it takes too long."""
        deadline = time.monotonic() + timeout
        while True:
            frame = observe(self._sandbox, NAMESPACE, JOB_NAME)
            self._screen.show(frame)
            if reached(frame):
                return frame
            if frame.over or time.monotonic() > deadline:
                raise DemoError(
                    f"waited for {what}, but the job is {frame.phase} ({frame.reason}), attempt "
                    f"{frame.attempt}, step {frame.step}\n{self._evidence()}"
                )
            time.sleep(POLL_SECONDS)

    def _evidence(self) -> str:
        log = log_of_operator(self._sandbox)
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        pods = self._sandbox.kubectl("get", "pods", "-o", "wide")
        return "\n".join([pods, *lines])


def _worth_killing(frame: Frame) -> bool:
    return (
        frame.phase == "Running"
        and frame.checkpoint is not None
        and frame.step is not None
        and frame.step >= frame.checkpoint + STEPS_BEYOND
        and frame.step >= PART_DONE * (frame.total_steps or 0)
    )


def _is_running(frame: Frame) -> bool:
    return frame.phase == "Running"


def _kill(cluster: DemoCluster, frame: Frame, screen: Screen) -> Loss:
    """Kill the node of rank 0, which hosts the rendezvous: the hardest to lose."""
    ranks = sorted(r for r in ((each.name, each.node) for each in frame.ranks) if r[1])
    node = ranks[0][1]
    loss = Loss(node, time.time(), frame.step or 0, frame.checkpoint or 0, frame.attempt)
    cluster.kill(node)
    screen.say(
        f"{node} has lost power, and rank {ranks[0][0]} with it: step {loss.step}, "
        f"checkpoint {loss.durable_step}",
        "bold red",
    )
    return loss


def _goes_on(frame: Frame, loss: Loss, trained: bool) -> bool:
    if frame.attempt <= loss.attempt or frame.phase not in ("Running", "Complete"):
        return False
    progress = frame.job.get("status", {}).get("progress", {})
    return not trained or (
        progress.get("attempt") == frame.attempt and progress.get("firstStepAt") is not None
    )


def _say_resumed(frame: Frame, screen: Screen) -> None:
    progress = frame.job.get("status", {}).get("progress", {})
    resumed = progress.get("resumedFromStep")
    told = f", resumed from step {resumed}" if resumed is not None else ""
    screen.say(f"attempt {frame.attempt} runs{told}", "bold green")


if __name__ == "__main__":
    sys.exit(main())
