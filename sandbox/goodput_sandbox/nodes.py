"""Real nodes of a sandbox: kubelet and containerd, which can be lost and cut off for real."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import (
    cleanup,
    containers,
    images,
    lifecycle,
    netns,
    nodes_cleanup,
    nodes_config,
    nodes_network,
)
from .images_archive import Image
from .nodes_config import NodeSpec
from .options import SandboxError
from .processes import end_all, identify
from .state import locked, read_json, write_json

if TYPE_CHECKING:
    from .sandbox import Sandbox

_INIT = Path(__file__).with_name("nodes_init.py")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_SPEC = "node.json"
_STALE = "stale.json"


class RealNodes:
    """The real nodes of one sandbox.

    Everything is found again from the state on disk, so any process can go on where another
    one was killed. `image_names` are what every node has from its start.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        image_names: Iterable[str] = (images.PYTHON, images.DIGITS),
    ) -> None:
        self._sandbox = sandbox
        self._image_names = (images.PAUSE, *image_names)
        self._folder = sandbox.state_dir / "nodes"
        self._store: Path | None = None

    # -- what there is -------------------------------------------------------------------

    def names(self) -> list[str]:
        """The nodes that were added, dead or alive."""
        return sorted(file.parent.name for file in self._folder.glob(f"*/{_SPEC}"))

    def alive(self, name: str) -> bool:
        """Whether the node's processes run."""
        return self._sandbox.processes.alive(_process(name))

    def spec(self, name: str) -> NodeSpec:
        """What the node was added as. Raises SandboxError if there is none of that name."""
        value = read_json(self._folder / name / _SPEC, None)
        if value is None:
            raise SandboxError(f"sandbox {self._sandbox.name} has no real node {name!r}")
        return NodeSpec(**value)

    # -- adding --------------------------------------------------------------------------

    def prepare(self) -> Path:
        """Build and unpack the images that nodes begin with; `add` does it if need be."""
        if self._store is None:
            wanted = images.ensure(self._image_names, lifecycle.say)
            self._store = containers.template(wanted, lifecycle.say)
        return self._store

    def add(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        extended_resources: Mapping[str, int] | None = None,
        wait: bool = True,
    ) -> None:
        """Start a node; returns once pods can be scheduled to it.

        `extended_resources` are countable devices that do not exist, such as
        `{"nvidia.com/gpu": 1}`. With `wait=False` several nodes start at once; `wait_ready`
        then has to be called, which also adds those resources, and labels that are Kubernetes'
        own.
        """
        if not _NAME.fullmatch(name):
            raise SandboxError(f"node name {name!r}: a-z, 0-9 and dashes, at most 40")
        if not self._sandbox.rooted:
            raise SandboxError("real nodes need root")
        store = self.prepare()
        spec = self._reserve(name, labels or {}, extended_resources or {})
        folder = self._folder / name
        nodes_config.write(self._sandbox, spec, folder, images.PAUSE)
        containers.clone(store, folder / "containerd")
        nodes_network.create(self._sandbox.scope, spec)
        self._start(name)
        if wait:
            self.wait_ready(name)

    def _reserve(
        self, name: str, labels: Mapping[str, str], resources: Mapping[str, int]
    ) -> NodeSpec:
        """Write down the node before anything of it exists, so that it will be cleaned up."""
        with locked(self._folder / "lock"):
            existing = [self.spec(n) for n in self.names()]
            if name in {s.name for s in existing}:
                raise SandboxError(f"sandbox {self._sandbox.name} has a node {name} already")
            index = min(set(range(1, 251)) - {s.index for s in existing})
            spec = NodeSpec(name, index, dict(labels), dict(resources))
            write_json(self._folder / name / _SPEC, asdict(spec))
            return spec

    def _start(self, name: str) -> None:
        folder = self._folder / name
        namespace = netns.path(self._namespace(name))
        argv = nodes_config.unshare_command(namespace, _INIT, folder, sys.executable)
        self._sandbox.spawn(_process(name), argv, inside=False, stop_signal=signal.SIGKILL)

    def wait_ready(self, *names: str, seconds: float = 60) -> None:
        """Wait until pods can be scheduled to these nodes (all, if none is named).

        Raises SandboxError with the end of the kubelet's log if that takes too long.
        """
        deadline = time.monotonic() + seconds
        left = list(names or self.names())
        while True:
            left = [n for n in left if not self.ready(n)]
            if not left:
                break
            dead = [n for n in left if not self.alive(n)]
            if dead or time.monotonic() > deadline:
                raise SandboxError(self._why_not_ready((dead or left)[0]))
            time.sleep(0.2)
        for name in names or self.names():
            self._complete(self.spec(name))

    def ready(self, name: str) -> bool:
        """Whether the node has reported itself well, and nothing keeps pods off it."""
        node = self._node(name)
        condition = self._condition(node, "Ready")
        stale = read_json(self._folder / name / _STALE, None)
        taints = [t["key"] for t in node.get("spec", {}).get("taints", ())]
        return (
            condition.get("status") == "True"
            and (not stale or condition["lastHeartbeatTime"] != stale["lastHeartbeatTime"])
            and not any(key.startswith("node.kubernetes.io/") for key in taints)
        )

    def _node(self, name: str) -> dict[str, Any]:
        """The Node object, empty if there is none."""
        text = self._sandbox.kubectl("get", "node", name, "--ignore-not-found", "-o", "json")
        node: dict[str, Any] = json.loads(text or "{}")
        return node

    @staticmethod
    def _condition(node: dict[str, Any], kind: str) -> dict[str, str]:
        conditions: list[dict[str, str]] = node.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def _why_not_ready(self, name: str) -> str:
        logs = [self._sandbox.log(_process(name)), self._folder / name / "kubelet.log"]
        tails = [f"{log}:\n{cleanup.tail(log, 12)}" for log in logs]
        return f"node {name} does not become ready\n" + "\n".join(tails)

    def _complete(self, spec: NodeSpec) -> None:
        """Add to the Node object what a kubelet can't, or forgets when it starts again."""
        reserved = {k: v for k, v in spec.labels.items() if k not in spec.own_labels}
        if reserved:
            self._patch(spec.name, {"metadata": {"labels": reserved}})
        if spec.extended_resources:
            amounts = {k: str(v) for k, v in spec.extended_resources.items()}
            status = {"capacity": amounts, "allocatable": amounts}
            self._patch(spec.name, {"status": status}, "--subresource=status")

    def _patch(self, name: str, patch: dict[str, Any], *options: str) -> None:
        text = f"--patch={json.dumps(patch)}"
        self._sandbox.kubectl("patch", "node", name, "--type=merge", text, *options)

    # -- images --------------------------------------------------------------------------

    def load_image(self, image: Image | Path, *names: str) -> None:
        """Import an image, or an archive as of `docker save`, into running nodes (all)."""
        for name in names or [n for n in self.names() if self.alive(n)]:
            containers.load(self._folder / name / "containerd.sock", image)

    # -- failure -------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Power loss: every process of the node ends at once and nobody is told.

        The wire is pulled first, so that no peer sees a connection closed.
        """
        self.partition(name)
        self._end(name)

    def partition(self, name: str) -> None:
        """Cut the node off the network; what runs on it runs on."""
        nodes_network.disconnect(self._sandbox.scope, self.spec(name))

    def heal(self, name: str) -> None:
        """Undo `partition`."""
        nodes_network.connect(self._sandbox.scope, self.spec(name))

    def restart(self, name: str, *, wait: bool = True) -> None:
        """Power a killed node on again: same name, same disk, nothing running."""
        spec = self.spec(name)
        if self.alive(name):
            raise SandboxError(f"node {name} is running; kill it first")
        folder = self._folder / name
        nodes_cleanup.remove_cgroups(folder)
        nodes_network.remove(self._namespace(name))
        nodes_config.write(self._sandbox, spec, folder, images.PAUSE)
        nodes_network.create(self._sandbox.scope, spec)
        # Until the kubelet reports anew, the API server may still believe the old report.
        write_json(folder / _STALE, self._condition(self._node(name), "Ready"))
        self._start(name)
        if wait:
            self.wait_ready(name)

    def remove(self, name: str) -> None:
        """Take a node away, its Node object too."""
        self.spec(name)
        self._erase(name)
        nodes_cleanup.delete_objects(self._sandbox, [name])

    def remove_all(self) -> None:
        """Take all nodes away, whatever state an earlier run left them in."""
        scope = self._sandbox.scope
        found = {n.removeprefix(f"{scope}-") for n in netns.owned(scope) if n != scope}
        if self._folder.is_dir():
            found |= {entry.name for entry in self._folder.iterdir() if entry.is_dir()}
        for name in found:
            # All dark first: a node should not act on the loss of another.
            self._end(name)
        for name in found:
            self._erase(name)
        nodes_cleanup.delete_objects(self._sandbox, sorted(found))
        nodes_cleanup.remove_mount_points()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _erase(self, name: str) -> None:
        self._end(name)
        namespace = self._namespace(name)
        if netns.path(namespace).exists():
            nodes_network.remove(namespace)
        nodes_cleanup.remove_cgroups(self._folder / name)
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _end(self, name: str) -> None:
        """End the node's processes by killing the first one; wait until the last has gone."""
        entry = self._sandbox.processes.get(_process(name))
        own = nodes_cleanup.descend(entry.pid) if entry and entry.identity.alive() else []
        self._sandbox.stop_process(_process(name), kill=True)
        namespace = self._namespace(name)
        if netns.path(namespace).exists():
            # Also those of a node that was started, but not written down any more.
            own += [p for pid in netns.processes(namespace) if (p := identify(pid))]
        stubborn = end_all(own, signal.SIGKILL)
        if stubborn:
            raise SandboxError(f"node {name}: processes {[p.pid for p in stubborn]} do not end")

    def _namespace(self, name: str) -> str:
        return f"{self._sandbox.scope}-{name}"


def _process(name: str) -> str:
    """Name of a node in the sandbox's table of processes."""
    return f"node-{name}"
