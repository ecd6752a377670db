"""What is left of a real node once its processes have gone, and how to remove it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .nodes_init import BOUND
from .options import SandboxError
from .processes import ProcessId, identify
from .state import read_json

if TYPE_CHECKING:
    from .sandbox import Sandbox


def descend(pid: int) -> list[ProcessId]:
    """The children of a process; the first process of a namespace outlives all in it."""
    try:
        numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [found for number in numbers if (found := identify(int(number)))]


def remove_cgroups(folder: Path, seconds: float = 3.0) -> None:
    """Remove the cgroups that a node noted, and those above if they are empty then.

    The kernel counts a dead process for a moment longer, so this is tried again.
    """
    deadline = time.monotonic() + seconds
    tops = [Path(p) for p in read_json(folder / "cgroups.json", [])]
    while any(not _removed(top) for top in tops) and time.monotonic() < deadline:
        time.sleep(0.05)
    for top in tops:
        with contextlib.suppress(OSError):
            top.parent.rmdir()


def _removed(top: Path) -> bool:
    for root, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(root).rmdir()
    return not top.exists()


def remove_mount_points() -> None:
    """Remove the empty folders on which nodes mounted their own, if no node uses them."""
    used = set()
    for file in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            used |= {line.split()[4] for line in file.read_text().splitlines()}
    for point in BOUND.keys() - used - {"/var/log"}:
        with contextlib.suppress(OSError):
            Path(point).rmdir()


def delete_objects(sandbox: Sandbox, names: list[str]) -> None:
    """Delete the Node objects, if there still is an API server to ask."""
    if not names or not sandbox.processes.alive("kube-apiserver"):
        return
    with contextlib.suppress(SandboxError, subprocess.TimeoutExpired):
        sandbox.kubectl("delete", "node", *names, "--ignore-not-found", "--wait=false", timeout=10)
