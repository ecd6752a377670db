"""Shows frames: live on a terminal, as lines where the output goes to a file."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .frame import Frame

_STYLES = {"Running": "green", "Terminating": "yellow", "Failed": "red", "Complete": "green"}


class Screen:
    """A live picture of the job above the story so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._began = time.monotonic()
        self._last_line = ""

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live and self._live.is_started:
            self._live.__exit__(kind, error, trace)

    def say(self, message: str, style: str = "bold") -> None:
        """A line of the story; it stays."""
        stamp = f"{time.monotonic() - self._began:6.1f} s  "
        self._console.print(Text(stamp, "dim") + Text(message, style), soft_wrap=True)

    def show(self, frame: Frame) -> None:
        """The newest frame: replaces the picture, or adds a line where something changed."""
        if self._live:
            if not self._live.is_started:
                self._live.start()
            self._live.update(_picture(frame), refresh=True)
            return
        line = _line(frame)
        if line != self._last_line:
            self.say(line, "")
            self._last_line = line


def _line(frame: Frame) -> str:
    lost = [name for name, ready in frame.nodes.items() if not ready]
    ranks = " ".join(
        f"{each.name}@{each.node or '?'}:{each.state}"
        for each in frame.ranks
        if each.attempt == frame.attempt
    )
    loss = f" loss {frame.loss:.4f}" if frame.loss is not None else ""
    return (
        f"{frame.phase:<10} attempt {frame.attempt} ready {frame.ready or '-'} "
        f"step {_or_dash(frame.step)}{loss} checkpoint {_or_dash(frame.checkpoint)} "
        f"[{ranks}]" + (f" not ready: {', '.join(lost)}" if lost else "")
    )


def _picture(frame: Frame) -> Group:
    head = Table.grid(padding=(0, 3))
    loss = f"{frame.loss:.4f}" if frame.loss is not None else "-"
    total = f"/{frame.total_steps}" if frame.total_steps else ""
    head.add_row(
        Text(frame.phase, _STYLES.get(frame.phase, "cyan")),
        f"attempt {frame.attempt}",
        f"ready {frame.ready or '-'}",
        f"step {_or_dash(frame.step)}{total}",
        f"loss {loss}",
        f"checkpoint {_or_dash(frame.checkpoint)}",
    )
    nodes = Table(box=None, padding=(0, 3, 0, 0))
    for column in ("node", "", "ranks"):
        nodes.add_column(column, style="dim" if not column else "")
    for name, ready in frame.nodes.items():
        here = [each for each in frame.ranks if each.node == name]
        nodes.add_row(
            name,
            Text("Ready", "green") if ready else Text("NotReady", "red"),
            "  ".join(f"a{each.attempt} {each.name} {each.state}" for each in here),
        )
    return Group(head, nodes)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
