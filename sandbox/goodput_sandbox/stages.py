"""How KWOK plays nodes and pods: its Stage objects, applied in an order that matters.

KWOK's pod controller honours the node Leases (by which a simulated node is killed here) only
if its node controller was started before it, and each starts with its first Stage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from . import build
from .options import REPOSITORY, SandboxError

if TYPE_CHECKING:
    from .sandbox import Sandbox

_COMPONENT = "kwok-controller"
_OURS = REPOSITORY / "sandbox" / "manifests" / "stages"


def apply(sandbox: Sandbox) -> None:
    """Apply the stages to a KWOK that has just been started without any stage of pods."""
    files = sorted([*(build.assets_dir() / "stages").glob("*.yaml"), *_OURS.glob("*.yaml")])
    of_nodes = [f for f in files if _kind(f) == "Node"]
    sandbox.apply(*of_nodes)
    sandbox.wait_until(lambda: _plays(sandbox, "Node"), 30, "KWOK plays no nodes", _COMPONENT)
    sandbox.apply(*(f for f in files if f not in of_nodes))


def withdraw_pods(sandbox: Sandbox) -> None:
    """Delete the stages of pods, to be done before KWOK is started again."""
    stages = json.loads(sandbox.kubectl("get", "stages.kwok.x-k8s.io", "-o", "json"))["items"]
    names = [s["metadata"]["name"] for s in stages if s["spec"]["resourceRef"]["kind"] == "Pod"]
    if names:
        sandbox.kubectl("delete", "stages.kwok.x-k8s.io", *names)


def _kind(file: Path) -> str:
    kind: str = yaml.safe_load(file.read_text())["spec"]["resourceRef"]["kind"]
    return kind


def _plays(sandbox: Sandbox, kind: str) -> bool:
    """Whether the running KWOK has started its controller for a kind, by its log."""
    entry = sandbox.processes.get(_COMPONENT)
    if entry is None:
        raise SandboxError(f"{_COMPONENT} is not running")
    for line in sandbox.log(_COMPONENT).read_text().splitlines():
        if '"Start stage controller"' in line and f'"{kind}"' in line:
            return True
    return False
