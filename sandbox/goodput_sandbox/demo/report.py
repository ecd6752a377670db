"""The demo's closing table, and whether what it shows is good enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from .frame import seconds


@dataclass(frozen=True)
class Loss:
    """The moment at which a node was killed. Times are POSIX seconds."""

    node: str
    at: float
    step: int
    """Last step reported before."""
    durable_step: int
    """Last durable checkpoint before."""
    attempt: int


@dataclass(frozen=True)
class Outcome:
    """What became of the run, measured from the objects in the cluster."""

    loss: Loss
    phase: str
    attempt: int
    resumed_from: int | None
    detected_after: float | None
    pods_after: float | None
    first_step_after: float | None
    crash_restarts: int
    infrastructure_restarts: int
    accuracy: float | None
    nodes: int
    """Nodes over which the last attempt was spread."""

    @property
    def redone(self) -> int | None:
        """Steps that had been reported and were trained again."""
        return None if self.resumed_from is None else max(0, self.loss.step - self.resumed_from)


def outcome(
    loss: Loss, restarted: Mapping[str, Any], final: Mapping[str, Any], accuracy: float | None
) -> Outcome:
    """From the job as it was when the new attempt trained, and as it was in the end."""
    records: list[Mapping[str, Any]] = [*final.get("attempts", ()), {}]
    ended = next(each for each in records if each.get("attempt", loss.attempt) == loss.attempt)
    progress = restarted.get("progress", {})
    placement = restarted.get("placement", {})
    return Outcome(
        loss=loss,
        phase=final.get("phase", ""),
        attempt=final.get("attempt", 0),
        resumed_from=progress.get("resumedFromStep"),
        detected_after=_after(loss, ended.get("endedAt")),
        pods_after=_after(loss, placement.get("createdAt")),
        first_step_after=_after(loss, progress.get("firstStepAt")),
        crash_restarts=final.get("restarts", {}).get("crash", 0),
        infrastructure_restarts=final.get("restarts", {}).get("infrastructure", 0),
        accuracy=accuracy,
        nodes=len(placement.get("nodes", ())),
    )


def _after(loss: Loss, time: str | None) -> float | None:
    moment = seconds(time)
    return None if moment is None else moment - loss.at


def shortcomings(result: Outcome, trained: bool) -> list[str]:
    """What the run failed to show; empty when all is well."""
    found = []
    if result.phase != "Complete":
        found.append(f"the job ended as {result.phase or 'nothing'}, not Complete")
    if result.attempt <= result.loss.attempt:
        found.append("no new attempt was started after the loss of the node")
    if result.crash_restarts or not result.infrastructure_restarts:
        found.append(
            "the loss of a node was not counted as infrastructure: "
            f"crash {result.crash_restarts}, infrastructure {result.infrastructure_restarts}"
        )
    if not trained:
        return found
    if result.nodes < 2:
        found.append("the ranks were not on two nodes: no collective crossed a network")
    if result.resumed_from is None:
        found.append("training did not resume from a checkpoint")
    elif result.resumed_from < result.loss.durable_step:
        found.append(
            f"training resumed from step {result.resumed_from}, but step "
            f"{result.loss.durable_step} was durable"
        )
    if result.accuracy is None:
        found.append("no accuracy on the held-out digits was reported")
    return found


def table(result: Outcome, trained: bool) -> Table:
    """The figures, as they were measured."""
    drawn = Table(title=f"Node {result.loss.node} was killed", title_justify="left")
    drawn.add_column("what")
    drawn.add_column("value", justify="right")
    if trained:
        drawn.add_row("last step reported before the loss", str(result.loss.step))
        drawn.add_row("last durable step before the loss", str(result.loss.durable_step))
        drawn.add_row("step resumed from", _text(result.resumed_from))
        drawn.add_row("steps redone", _text(result.redone))
    drawn.add_row("loss to detection", _seconds(result.detected_after))
    drawn.add_row("loss to new pods", _seconds(result.pods_after))
    if trained:
        drawn.add_row("loss to first new step", _seconds(result.first_step_after))
    drawn.add_row(
        "restarts counted",
        f"crash {result.crash_restarts}, infrastructure {result.infrastructure_restarts}",
    )
    if trained:
        percent = None if result.accuracy is None else f"{100 * result.accuracy:.1f} %"
        drawn.add_row("accuracy on held-out digits", _text(percent))
    return drawn


def show(console: Console, result: Outcome, trained: bool) -> int:
    """Print the table and what is wrong; the demo's exit code."""
    console.print(table(result, trained))
    if not trained:
        console.print("The nodes were simulated: no training happened, only its life cycle.")
    problems = shortcomings(result, trained)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    return 1 if problems else 0


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
