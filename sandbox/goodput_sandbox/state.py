"""What a sandbox remembers on disk, so that another process can find it or clean it up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .processes import ProcessId, end_all


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel frees it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_json(path: Path, value: Any) -> None:
    """Replace a file at once, so that a kill in the middle never leaves half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1))
    temporary.replace(path)


def read_json(path: Path, default: Any) -> Any:
    """The content of a JSON file, or the default if there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default


@dataclass(frozen=True)
class Entry:
    """One started process."""

    name: str
    pid: int
    start_time_ticks: int
    argv: list[str]
    stop_signal: int = int(signal.SIGTERM)

    @property
    def identity(self) -> ProcessId:
        """The process, as something that can be asked and signalled."""
        return ProcessId(self.pid, self.start_time_ticks)


class ProcessTable:
    """The processes of one sandbox, in a JSON file that outlives whoever wrote it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")

    def entries(self) -> list[Entry]:
        """All recorded processes, oldest first, whether alive or not."""
        return [Entry(**e) for e in read_json(self._path, [])]

    def get(self, name: str) -> Entry | None:
        """The recorded process of that name."""
        return next((e for e in self.entries() if e.name == name), None)

    def add(self, entry: Entry) -> None:
        """Record a process, in place of an earlier one of that name."""
        with locked(self._lock):
            others = [e for e in self.entries() if e.name != entry.name]
            self._write([*others, entry])

    def remove(self, name: str) -> None:
        """Forget a process."""
        with locked(self._lock):
            self._write([e for e in self.entries() if e.name != name])

    def alive(self, name: str) -> bool:
        """Whether the process of that name runs."""
        entry = self.get(name)
        return entry is not None and entry.identity.alive()

    def stop(self, name: str, kill: bool = False) -> None:
        """End one process and forget it; nothing happens if it isn't there."""
        entry = self.get(name)
        if entry is None:
            return
        number = signal.SIGKILL if kill else signal.Signals(entry.stop_signal)
        end_all([entry.identity], number)
        self.remove(name)

    def stop_all(self) -> None:
        """End every recorded process (except ourselves), the newest kind of stop first."""
        entries = [e for e in self.entries() if e.pid != os.getpid()]
        gentle = [e.identity for e in entries if e.stop_signal != signal.SIGKILL]
        end_all(gentle, signal.SIGTERM)
        end_all([e.identity for e in entries], signal.SIGKILL)
        with locked(self._lock):
            self._write([])

    def _write(self, entries: list[Entry]) -> None:
        write_json(self._path, [asdict(e) for e in entries])
