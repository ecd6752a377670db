"""Removing everything of a sandbox, whoever started it and however that ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from . import netns
from .processes import end_all, identify, marked
from .state import ProcessTable

_CGROUPS = Path("/sys/fs/cgroup")


def tail(path: Path, lines: int) -> str:
    """The last lines of a file, empty if there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def sweep(state_dir: Path, scope: str) -> None:
    """End the processes and remove namespaces, mounts, cgroups and state of a sandbox."""
    ProcessTable(state_dir / "processes.json").stop_all()
    # Started, but killed before it was written down; or a child of a child. More than once,
    # as one of them may start another while we look.
    for _ in range(3):
        end_all(marked(state_dir), signal.SIGKILL)
    for name in netns.owned(scope):
        inside = (identify(pid) for pid in netns.processes(name))
        end_all((p for p in inside if p), signal.SIGKILL)
        netns.remove(name)
    _unmount_below(state_dir)
    _remove_cgroups(scope)
    shutil.rmtree(state_dir, ignore_errors=True)


def leftovers(state_dir: Path, scope: str) -> list[str]:
    """What of a sandbox still exists, in words; empty after a complete `down`."""
    found = [f"process {p.pid}" for p in marked(state_dir)]
    found += [f"network namespace {n}" for n in netns.owned(scope)]
    found += [f"mount {m}" for m in _mounts_below(state_dir)]
    found += [f"cgroup {c}" for c in _cgroups(scope)]
    if state_dir.exists():
        found.append(f"folder {state_dir}")
    return found


def _mounts_below(folder: Path) -> list[str]:
    """Mount points at or below a folder, innermost first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == str(folder) or point.startswith(f"{folder}/"):
            points.append(point)
    return points[::-1]


def _unmount_below(folder: Path) -> None:
    for point in _mounts_below(folder):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def _cgroups(scope: str) -> list[Path]:
    """Topmost cgroups of a sandbox in every hierarchy, at most three levels down."""
    found = []
    for root, folders, _ in os.walk(_CGROUPS, followlinks=False):
        ours = [f for f in folders if f == scope or f.startswith(f"{scope}-")]
        found += [Path(root) / f for f in ours]
        deep = len(Path(root).relative_to(_CGROUPS).parts) >= 3
        folders[:] = [] if deep else [f for f in folders if f not in ours]
    return found


def _remove_cgroups(scope: str) -> None:
    for top in _cgroups(scope):
        for root, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(root).rmdir()
