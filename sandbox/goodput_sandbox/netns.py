"""The sandbox's own network namespace: a bridge for its nodes, and nothing on the host."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from .options import BRIDGE, BRIDGE_ADDRESS, BRIDGE_PREFIX, SandboxError
from .state import locked

_FOLDER = Path("/run/netns")
_LOCK = Path("/run/goodput-sandbox.lock")


def path(name: str) -> Path:
    """Where `ip netns` keeps the handle of a namespace."""
    return _FOLDER / name


def enter(namespace: Path) -> list[str]:
    """Prefix that runs a command inside; `ip netns exec` would hide the cgroup mounts."""
    return ["nsenter", f"--net={namespace}", "--"]


def run(*argv: str) -> str:
    """Run a system command; raises SandboxError with what it said."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise SandboxError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def create(name: str) -> None:
    """Make the namespace with loopback and the bridge to which nodes attach."""
    with locked(_LOCK):
        run("ip", "netns", "add", name)
    inside = ["ip", "-n", name]
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "link", "add", BRIDGE, "type", "bridge")
    address = f"{BRIDGE_ADDRESS}/{BRIDGE_PREFIX}"
    run(*inside, "addr", "add", address, "dev", BRIDGE)
    run(*inside, "link", "set", BRIDGE, "up")


def owned(scope: str) -> list[str]:
    """Names of the namespaces of a sandbox, its nodes' before its own."""
    if not _FOLDER.is_dir():
        return []
    names = [e.name for e in _FOLDER.iterdir()]
    ours = [n for n in names if n == scope or n.startswith(f"{scope}-")]
    return sorted(ours, reverse=True)


def remove(name: str) -> None:
    """Delete a namespace (its links go with it) and, after the last, the folder's mount."""
    with locked(_LOCK):
        run("ip", "netns", "del", name)
        with contextlib.suppress(OSError):
            if not any(_FOLDER.iterdir()):
                subprocess.run(["umount", str(_FOLDER)], capture_output=True, check=False)


def processes(name: str) -> list[int]:
    """Numbers of the processes in a namespace, except our own."""
    found = run("ip", "netns", "pids", name).split()
    return [int(p) for p in found if int(p) != os.getpid()]
