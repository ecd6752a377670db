"""The demo's cluster: real nodes where there is root, the examples' queue, the operator."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from goodput_sandbox.operator_process import start_operator
from goodput_sandbox.options import REPOSITORY, SandboxOptions
from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.volumes import shared_volume

EXAMPLES = REPOSITORY / "examples"
QUEUE = EXAMPLES / "kueue" / "queue.yaml"
STORAGE = EXAMPLES / "digits" / "storage.yaml"
JOB = EXAMPLES / "digits" / "trainingjob.yaml"
CLAIM = "digits-checkpoints"
NODES = ("node-a", "node-b", "node-c")

Say = Callable[[str], None]


class DemoCluster(Protocol):
    """What the demo does to its cluster."""

    trained: bool
    """Whether ranks really run."""

    def kill(self, node: str) -> None:
        """Let a node lose power."""

    def finish(self) -> None:
        """Let simulated ranks end; real ones do so by themselves."""

    def accuracy(self, attempt: int) -> float | None:
        """What rank 0 wrote as its result, if it ran."""


def prepare(sandbox: Sandbox, say: Say) -> DemoCluster:
    """Bring everything up but the job. The sandbox goes with this process."""
    sandbox.up(SandboxOptions(), owner_pid=os.getpid())
    cluster: DemoCluster = RealCluster(sandbox, say) if sandbox.rooted else Simulated(sandbox)
    start_operator(sandbox, {"GOODPUT_LOG_LEVEL": "INFO"})
    sandbox.apply(QUEUE, STORAGE)
    return cluster


class RealCluster:
    """Three kubelets, each with a containerd and a network of its own."""

    trained = True

    def __init__(self, sandbox: Sandbox, say: Say) -> None:
        from goodput_sandbox import images, requirements
        from goodput_sandbox.nodes import RealNodes

        requirements.ensure(say, requirements.REAL_NODES)
        self._nodes = RealNodes(sandbox, (images.DIGITS,))
        for index, name in enumerate(NODES):
            rack = f"rack-{index + 1}"
            self._nodes.add(name, labels={"goodput.dev/rack": rack}, wait=False)
        self._nodes.wait_ready(*NODES)
        self._checkpoints = shared_volume(sandbox, "default", CLAIM)

    def kill(self, node: str) -> None:
        """SIGKILL to everything on it at once."""
        self._nodes.kill(node)

    def finish(self) -> None:
        """Nothing to do."""

    def accuracy(self, attempt: int) -> float | None:
        """From ``result.json`` of that attempt, on the shared volume."""
        for file in self._checkpoints.glob(f"*/attempt-{attempt}/result.json"):
            result: dict[str, Any] = json.loads(file.read_text())
            return float(result["accuracy"])
        return None


class Simulated:
    """Three nodes that KWOK plays: the same life cycle, without any training."""

    trained = False

    def __init__(self, sandbox: Sandbox) -> None:
        from goodput_sandbox.simulated import CPU_ONLY

        self._sandbox = sandbox
        sandbox.simulated.add(len(NODES), CPU_ONLY, prefix="node", cpu="2", memory="8Gi")
        shared_volume(sandbox, "default", CLAIM)

    def kill(self, node: str) -> None:
        """Let it fall silent."""
        self._sandbox.simulated.kill(node, at_once=False)

    def finish(self) -> None:
        """Let the running pods succeed."""
        self._sandbox.kubectl(
            "annotate", "pods", "--all", "--overwrite", "sandbox.goodput.dev/complete-after=1s"
        )

    def accuracy(self, attempt: int) -> float | None:
        """Nothing was trained."""
        return None


def log_of_operator(sandbox: Sandbox) -> Path:
    """Where to look when something went wrong."""
    return sandbox.log("goodput-operator")
