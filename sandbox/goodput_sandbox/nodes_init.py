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
from dataclasses import dataclass
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
_MNT_DETACH = 2
_CLONE_NEWCGROUP = 0x02000000
_COMMON_OPTIONS = ("rw", "ro")
_RESTART_SECONDS = 1.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup hierarchy, and where this process is in it."""

    mount: Path
    kind: str
    options: str
    own: Path


def hierarchies() -> list[Hierarchy]:
    """All that are mounted here: one with version 2, several with version 1, or a mixture."""
    mounts: dict[str, tuple[Path, str, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, flags = tail.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            options = [o for o in flags.split(",") if o not in _COMMON_OPTIONS]
            named = any(o.startswith("name=") for o in options)
            given = ",".join(["none"] * named + options) if kind == "cgroup" else ""
            for key in options if kind == "cgroup" else [""]:
                mounts.setdefault(key, (Path(head.split()[4]), kind, given))
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if entry := mounts.get(controllers.split(",")[0]):
            mount, kind, given = entry
            found.append(Hierarchy(mount, kind, given, mount / own.lstrip("/")))
    return found


def _make_cgroup(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # A version 1 cpuset starts empty, and an empty one takes no process.
    for file in ("cpuset.cpus", "cpuset.mems"):
        target = folder / file
        if target.exists() and not target.read_text().strip():
            with contextlib.suppress(OSError):
                target.write_text((folder.parent / file).read_text())
    # Version 2 hands a controller down only when told to, and not where processes are.
    available = folder.parent / "cgroup.controllers"
    if available.exists():
        for controller in available.read_text().split():
            with contextlib.suppress(OSError):
                (folder.parent / "cgroup.subtree_control").write_text(f"+{controller}")


def isolate_cgroups(path: str, note: Path) -> None:
    """Make a cgroup of the node's own the root of all that kubelet and containerd see.

    Several kubelets would otherwise count and remove each other's containers. Which cgroups
    they are is noted first, so that they are removed however this ends.
    """
    found = hierarchies()
    note.write_text(json.dumps([str(h.own / path) for h in found]))
    for hierarchy in found:
        folder = hierarchy.own
        for part in Path(path).parts:
            folder = folder / part
            _make_cgroup(folder)
        (folder / "cgroup.procs").write_text("0")
    _call("unshare", _CLONE_NEWCGROUP)
    for hierarchy in found:
        # In place of the old one: the kernel refuses the same hierarchy on top of itself.
        _call("umount2", str(hierarchy.mount).encode(), _MNT_DETACH)
        _mount(hierarchy.kind, str(hierarchy.mount), hierarchy.kind, 0, hierarchy.options)
        # Version 2 takes no process where there are children.
        _make_cgroup(hierarchy.mount / "system")
        (hierarchy.mount / "system" / "cgroup.procs").write_text("0")


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}{arguments}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


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
    isolate_cgroups(plan["cgroup"], folder / "cgroups.json")
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
