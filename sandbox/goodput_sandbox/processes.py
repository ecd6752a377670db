"""Starting, finding and ending single processes, by number and start time.

A process number alone is reused by the kernel; together with the start time it names one
process, so that cleaning up after a killed run can never hit a stranger.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MARKER = "GOODPUT_SANDBOX"
"""Environment variable that every process of a sandbox inherits: its state folder."""

_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True)
class ProcessId:
    """One process, past or present."""

    pid: int
    start_time_ticks: int

    def alive(self) -> bool:
        """Whether exactly this process still runs (a zombie does not)."""
        reap(self.pid)
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.start_time_ticks and stat[0] not in "ZX"

    def send(self, number: signal.Signals) -> bool:
        """Signal exactly this process; false if it has gone."""
        if not self.alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> ProcessId | None:
    """The identity of a running process, None if there is none with that number."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat[1])


def reap(pid: int) -> None:
    """Collect the exit status if it is an ended child of ours, so that no zombie stays."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def environment(marker: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without proxies (all traffic is local), marked as the sandbox's."""
    base = {k: v for k, v in os.environ.items() if k.lower() not in _PROXY_VARIABLES}
    return {**base, **(extra or {}), MARKER: str(marker)}


def module_environment() -> dict[str, str]:
    """What a Python process of ours needs to import this package."""
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def start(argv: list[str], log: Path, env: Mapping[str, str]) -> ProcessId:
    """Start a process in a session of its own, output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    blocked: list[int] = []
    defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE]
    pid = os.posix_spawnp(
        argv[0],
        argv,
        dict(env),
        file_actions=actions,
        setsid=True,
        setsigmask=blocked,
        setsigdef=defaults,
    )
    identity = identify(pid)
    return identity or ProcessId(pid, -1)


def marked(marker: Path) -> Iterator[ProcessId]:
    """All processes that belong to a sandbox, recorded or not, except ourselves."""
    wanted = f"{MARKER}={marker}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables and (found := identify(int(entry.name))):
            yield found


def end_all(
    processes: Iterable[ProcessId], number: signal.Signals, grace_seconds: float = 3.0
) -> list[ProcessId]:
    """Signal, wait, then kill; returns what outlived even that (there should be none)."""
    left = [p for p in processes if p.send(number)]
    for p in left:
        # A frozen process would sleep through SIGTERM.
        p.send(signal.SIGCONT)
    left = wait_gone(left, 0.0 if number is signal.SIGKILL else grace_seconds)
    for p in left:
        p.send(signal.SIGKILL)
    return wait_gone(left, 5.0)


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until the processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = [p for p in processes if p.alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [p for p in left if p.alive()]
    return left
