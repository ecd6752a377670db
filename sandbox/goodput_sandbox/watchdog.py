"""Takes a sandbox down once its owner has gone, even if that was killed with SIGKILL.

Run by path, so that it imports nothing but the standard library while it waits.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path


def start_time_ticks(pid: int) -> int | None:
    """Start time of a process, None if it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])


def wait_for_end(pid: int, ticks: int) -> None:
    """Block until exactly that process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Asked after opening: now the handle can't be another process of the same number.
        if start_time_ticks(pid) == ticks:
            select.select([handle], [], [])
    finally:
        os.close(handle)


def main() -> None:
    """Entry point: NAME PID START_TIME_TICKS."""
    name, pid, ticks = sys.argv[1:]
    wait_for_end(int(pid), int(ticks))
    argv = [sys.executable, "-m", "goodput_sandbox", "down", "--name", name]
    os.execv(sys.executable, argv)


if __name__ == "__main__":
    main()
