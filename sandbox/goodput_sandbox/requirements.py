"""System tools that can't be built from source here, and how Debian calls them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .options import SandboxError

_SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True)
class Tool:
    """A command (or a file, if it has a slash) and the package that brings it."""

    command: str
    package: str

    def present(self) -> bool:
        """Whether this machine has it."""
        if "/" in self.command:
            return Path(self.command).exists()
        return shutil.which(self.command, path=_SEARCH) is not None


CONTROL_PLANE = (
    Tool("ip", "iproute2"),
    Tool("nsenter", "util-linux"),
    Tool("unshare", "util-linux"),
    Tool("mount", "mount"),
)
REAL_NODES = (
    Tool("iptables", "iptables"),
    Tool("containerd", "containerd"),
    Tool("runc", "runc"),
    Tool("/usr/lib/cni/bridge", "containernetworking-plugins"),
    Tool("debootstrap", "debootstrap"),
)


def missing(tools: tuple[Tool, ...] = CONTROL_PLANE) -> list[str]:
    """Packages that have to be installed, each once."""
    return sorted({t.package for t in tools if not t.present()})


def ensure(say: Callable[[str], None], tools: tuple[Tool, ...] = CONTROL_PLANE) -> None:
    """Install what is missing, if we may; raises SandboxError saying what to install."""
    packages = missing(tools)
    if not packages:
        return
    apt = shutil.which("apt-get", path=_SEARCH)
    if apt is None or os.geteuid() != 0:
        raise SandboxError(f"install these packages first: {' '.join(packages)}")
    say(f"installing {' '.join(packages)}")
    with _no_services():
        _run([apt, "-qq", "update"])
        _run([apt, "-qq", "install", "--yes", "--no-install-recommends", *packages])
    still = missing(tools)
    if still:
        raise SandboxError(f"apt-get installed {' '.join(still)}, but its commands are missing")


def _run(argv: list[str]) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SandboxError(f"{' '.join(argv)}: {done.stderr.strip()[-2000:]}")


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Debian starts a package's service on installation unless this script says no."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
