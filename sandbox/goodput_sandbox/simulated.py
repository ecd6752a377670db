"""Nodes that KWOK plays: Ready within a second, as many as wanted, with no machine behind.

Their pods run until they are deleted; annotations on a pod script its end:
`sandbox.goodput.dev/complete-after: "30s"`, `sandbox.goodput.dev/fail-exit-code: "137"` and
with that `sandbox.goodput.dev/fail-after: "10s"` and `sandbox.goodput.dev/fail-message`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .controlplane import FAKE_NODE
from .testing import wait_for

if TYPE_CHECKING:
    from .sandbox import Sandbox

SIMULATED_LABEL = "sandbox.goodput.dev/simulated"
RACK_LABEL = "goodput.dev/rack"
BLOCK_LABEL = "goodput.dev/block"
POWER_LABEL = "goodput.dev/power-domain"
_KUBECTLS = 4
_FOREVER_SECONDS = 10 * 365 * 24 * 3600


@dataclass(frozen=True)
class NodeSpec:
    """What a kind of node looks like. Racks, blocks and slices are filled in order."""

    prefix: str = "gpu"
    labels: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    )
    accelerator_resource: str | None = "nvidia.com/gpu"
    accelerators: int = 8
    cpu: str = "96"
    memory: str = "1Ti"
    pods: int = 110
    nodes_per_rack: int = 8
    racks_per_block: int = 4
    rack_prefix: str | None = None
    """By default racks are named after the prefix, so that kinds of nodes don't mix."""
    nodes_per_slice: int = 0
    """Where positive, nodes are grouped into TPU slices by `cloud.google.com/gke-nodepool`."""
    power_domain: str | None = None
    """By default each rack is its own power domain."""
    taints: tuple[Mapping[str, str], ...] = ()


H100 = NodeSpec()
A100 = NodeSpec(prefix="a100", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
TPU_V5E = NodeSpec(
    prefix="tpu",
    labels={
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    },
    accelerator_resource="google.com/tpu",
    accelerators=4,
    nodes_per_slice=4,
)
CPU_ONLY = NodeSpec(prefix="cpu", labels={}, accelerator_resource=None)


def node_object(spec: NodeSpec, index: int) -> dict[str, Any]:
    """The Node of that number; numbers place it in rack, block and slice."""
    name = f"{spec.prefix}-{index:04d}"
    rack_number = index // spec.nodes_per_rack
    rack = f"{spec.rack_prefix or spec.prefix + '-rack'}-{rack_number}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "sandbox",
        "topology.kubernetes.io/zone": "sandbox-a",
        SIMULATED_LABEL: "true",
        RACK_LABEL: rack,
        BLOCK_LABEL: f"{spec.prefix}-block-{rack_number // spec.racks_per_block}",
        POWER_LABEL: spec.power_domain or rack,
        **spec.labels,
    }
    if spec.nodes_per_slice:
        labels["cloud.google.com/gke-nodepool"] = f"{spec.prefix}-{index // spec.nodes_per_slice}"
    room = {"cpu": spec.cpu, "memory": spec.memory, "pods": str(spec.pods)}
    if spec.accelerator_resource:
        room[spec.accelerator_resource] = str(spec.accelerators)
    annotations = dict([FAKE_NODE])
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": [dict(t) for t in spec.taints]} if spec.taints else {},
        "status": {"capacity": room, "allocatable": room},
    }


class SimulatedNodes:
    """The simulated nodes of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def add(
        self, count: int, spec: NodeSpec = H100, *, wait: bool = True, **changes: Any
    ) -> list[str]:
        """Add nodes of a kind, numbered on from those there; `changes` replace its fields.

        Returns their names, once all are Ready.
        """
        spec = dataclasses.replace(spec, **changes)
        taken = {n for n in self._names() if n.startswith(f"{spec.prefix}-")}
        numbers = [int(n.rpartition("-")[2]) for n in taken if n.rpartition("-")[2].isdigit()]
        first = max(numbers, default=-1) + 1
        nodes = [node_object(spec, i) for i in range(first, first + count)]
        self._create(nodes)
        names = [n["metadata"]["name"] for n in nodes]
        if wait:
            self.wait_ready(names, timeout=30 + count / 20)
        return names

    def _create(self, nodes: list[dict[str, Any]]) -> None:
        """Create the objects by a few kubectls at once, as each sends one after the other."""
        size = max(25, -(-len(nodes) // _KUBECTLS))
        lists = [
            json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes[i : i + size]})
            for i in range(0, len(nodes), size)
        ]

        def create(document: str) -> None:
            arguments = ("create", "--validate=false", "-f", "-")
            self._sandbox.kubectl(*arguments, input=document, timeout=600)

        with ThreadPoolExecutor(_KUBECTLS) as pool:
            list(pool.map(create, lists))

    def kill(self, name: str, *, at_once: bool = True) -> None:
        """Let a node fall silent, as if it lost power: its pods stay as they are.

        By default the node is marked Unknown now, as the controller manager would do after
        its grace period; the taint follows from it within a second. `at_once=False` waits for
        the grace period like a real one.
        """
        self._hold_lease(name, "nobody", _FOREVER_SECONDS)
        if at_once:
            self._set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting status.")

    def make_not_ready(self, name: str) -> None:
        """A node whose kubelet still speaks but says that it is not ready."""
        self._hold_lease(name, "nobody", _FOREVER_SECONDS)
        self._set_ready(name, "False", "KubeletNotReady", "container runtime is down")

    def revive(self, name: str) -> None:
        """Bring a silent node back; returns once it is Ready and its taints are gone."""
        self._hold_lease(name, "nobody", 1)
        self.wait_ready([name], timeout=30)
        path = "jsonpath={.spec.taints[*].key}"

        def untainted() -> tuple[bool, str]:
            taints = self._sandbox.kubectl("get", "node", name, "-o", path)
            return "unreachable" not in taints and "not-ready" not in taints, taints

        wait_for(untainted, 30, f"node {name} without taints")

    def delete(self, *names: str) -> None:
        """Remove nodes from the cluster, as a cloud does with a lost machine."""
        self._sandbox.kubectl("delete", "node", "--wait=false", *names)

    def out_of_service(self, name: str) -> None:
        """Taint a node as powered off for good, by which its pods may be force-deleted."""
        taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        self._sandbox.kubectl("taint", "node", name, taint)

    def wait_ready(self, names: list[str], timeout: float) -> None:
        """Wait until all these nodes are Ready."""
        wanted = set(names)

        def missing() -> tuple[bool, str]:
            left = wanted - self._ready()
            return not left, f"{len(left)} not Ready, such as {sorted(left)[:3]}"

        wait_for(missing, timeout, f"{len(wanted)} simulated nodes Ready")

    def _names(self) -> list[str]:
        return self._sandbox.kubectl("get", "nodes", "-o", "name").replace("node/", "").split()

    def _ready(self) -> set[str]:
        path = (
            '{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}'
            '{"\\n"}{end}'
        )
        text = self._sandbox.kubectl("get", "nodes", "-o", f"jsonpath={path}")
        return {line.split()[0] for line in text.splitlines() if line.endswith(" True")}

    def _hold_lease(self, name: str, holder: str, seconds: int) -> None:
        """KWOK leaves a node and its pods alone while somebody else holds the node's Lease.

        The Lease isn't renewed any more then, which is what the controller manager watches.
        """
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        patch = json.dumps({"spec": spec})
        arguments = ("lease", name, "--type=merge", f"--patch={patch}")
        self._sandbox.kubectl("patch", "--namespace=kube-node-lease", *arguments)

    def _set_ready(self, name: str, status: str, reason: str, message: str) -> None:
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        patch = json.dumps({"status": {"conditions": [condition]}})
        arguments = ("--subresource=status", "--type=strategic", f"--patch={patch}")
        self._sandbox.kubectl("patch", "node", name, *arguments)
