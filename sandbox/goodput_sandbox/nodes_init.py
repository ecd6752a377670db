"""First process of a real node: mounts and cgroups, then containerd and kubelet for its life.

It runs as process 1 of the node's own PID and mount namespaces, started by path (not as part of
the package) so that a node costs only the standard library. Whatever it mounts is gone with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

KERNEL_DEFAULTS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What the kubelet insists on and would otherwise set for the whole machine."""

BOUND = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/cni": "cni/state",
    "/var/log": "log",
}
"""Paths that kubelet or containerd have compiled in, and the node's folder for each."""

_MS_BIND = 4096
_RESTART_SECONDS = 1.0


def cgroup_parents() -> list[Path]:
    """The cgroup of this process in every mounted hierarchy, version 1 and 2."""
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind == "cgroup2":
            mounts.setdefault("", Path(head.split()[4]))
        elif kind == "cgroup":
            for option in options.split(","):
                mounts.setdefault(option, Path(head.split()[4]))
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        mount = mounts.get(controllers.split(",")[0])
        if mount is not None:
            found.append(mount / own.lstrip("/"))
    return found


def _inherit_cpuset(folder: Path) -> None:
    """A version 1 cpuset starts empty, and an empty one takes no process."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        target = folder / file
        if target.exists() and not target.read_text().strip():
            with contextlib.suppress(OSError):
                target.write_text((folder.parent / file).read_text())


def join_cgroups(path: str) -> None:
    """Move to a cgroup of the node's own; runc puts the containers beside or below it.

    One level below the node's, since version 2 takes no process where there are children.
    """
    for parent in cgroup_parents():
        folder = parent
        for part in (*Path(path).parts, "system"):
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(folder)
        (folder / "cgroup.procs").write_text("0")


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def mount_all(folder: Path) -> None:
    """Give the node its own version of what it would otherwise share with the machine."""
    for point, own in BOUND.items():
        (folder / own).mkdir(parents=True, exist_ok=True)
        Path(point).mkdir(parents=True, exist_ok=True)
        _mount(str(folder / own), point, "", _MS_BIND)
    for name, value in KERNEL_DEFAULTS.items():
        shown = folder / "kernel" / name.replace("/", ".")
        shown.parent.mkdir(exist_ok=True)
        shown.write_text(value + "\n")
        _mount(str(shown), f"/proc/sys/{name}", "", _MS_BIND)
    # Sockets, locks and running containers do not outlive a reboot.
    _mount("tmpfs", "/run", "tmpfs", 0)


def _start(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )


def _await_socket(path: Path, containerd: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        if containerd.poll() is not None:
            raise SystemExit(f"containerd ended with {containerd.returncode}")
        time.sleep(0.02)


def run(folder: Path) -> None:
    """Start what `node.json` says; start it again if it ends; collect every orphan."""
    plan = json.loads((folder / "init.json").read_text())
    join_cgroups(plan["cgroup"])
    mount_all(folder)
    socket = folder / "containerd.sock"
    socket.unlink(missing_ok=True)
    commands: dict[str, list[str]] = plan["commands"]
    running: dict[int, str] = {}
    for name, argv in commands.items():
        process = _start(argv, folder / f"{name}.log")
        running[process.pid] = name
        if name == "containerd":
            _await_socket(socket, process)
    while True:
        pid, _ = os.wait()
        name = running.pop(pid, "")
        if name:
            time.sleep(_RESTART_SECONDS)
            running[_start(commands[name], folder / f"{name}.log").pid] = name


if __name__ == "__main__":
    run(Path(sys.argv[1]))
