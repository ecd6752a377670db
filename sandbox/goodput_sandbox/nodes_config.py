"""The configuration files of a real node: kubelet, containerd, container network."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import containers, kubeconfig, pki
from .options import BRIDGE_ADDRESS, BRIDGE_PREFIX, CLUSTER_DOMAIN, SandboxError

if TYPE_CHECKING:
    from .sandbox import Sandbox

NODE_CPUS = 2
NODE_BRIDGE = "cni0"
_NETWORK = BRIDGE_ADDRESS.rsplit(".", 2)[0]
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
_CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")


@dataclass(frozen=True)
class NodeSpec:
    """What a node is; kept on disk so that any process can restart it."""

    name: str
    index: int
    """1 to 250: the third number of its addresses."""
    labels: dict[str, str] = field(default_factory=dict)
    extended_resources: dict[str, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """InternalIP of the node."""
        return f"{_NETWORK}.{self.index}.1"

    @property
    def own_labels(self) -> dict[str, str]:
        """Labels that a kubelet may give itself: none of Kubernetes' own."""
        return {k: v for k, v in self.labels.items() if not _RESERVED.search(k)}

    @property
    def pod_range(self) -> tuple[str, str]:
        """First and last address of its pods."""
        return f"{_NETWORK}.{self.index}.10", f"{_NETWORK}.{self.index}.250"


def write(sandbox: Sandbox, spec: NodeSpec, folder: Path, pause_image: str) -> None:
    """Write everything that a node reads at its start."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resolv.conf").write_text(f"nameserver {BRIDGE_ADDRESS}\n")
    _write_credentials(sandbox, spec, folder)
    _write_network(spec, folder)
    containers.write_config(
        folder / "containerd.toml",
        root=folder / "containerd",
        state=Path("/run/containerd"),
        socket=folder / "containerd.sock",
        cri=containers.CriConfig(pause_image, cni_plugins(), folder / "cni" / "conf"),
    )
    _write_json(folder / "kubelet.json", kubelet_config(sandbox, folder))
    plan = {
        "cgroup": f"{sandbox.scope}/{spec.name}",
        "commands": {
            "containerd": [containers.command("containerd"), f"--config={folder}/containerd.toml"],
            "kubelet": kubelet_command(sandbox, spec, folder),
        },
    }
    _write_json(folder / "init.json", plan)


def kubelet_command(sandbox: Sandbox, spec: NodeSpec, folder: Path) -> list[str]:
    """The kubelet's command line; what has a field in its configuration file is there."""
    command = [
        str(sandbox.binaries / "kubelet"),
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={folder}/kubeconfig",
        f"--cert-dir={folder}/pki",
        f"--hostname-override={spec.name}",
        f"--node-ip={spec.address}",
    ]
    if spec.own_labels:
        labels = ",".join(f"{k}={v}" for k, v in sorted(spec.own_labels.items()))
        command.append(f"--node-labels={labels}")
    return command


def kubelet_config(sandbox: Sandbox, folder: Path) -> dict[str, Any]:
    """A kubelet beside others on one machine, whose loss is noticed within seconds."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(sandbox.pki_dir / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "clusterDNS": [BRIDGE_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": f"{folder}/resolv.conf",
        # Renewed four times as often; the node counts as lost after the grace period of the
        # controller manager.
        "nodeLeaseDurationSeconds": 4,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        # Several kubelets share one cgroup tree and one disk, and manage neither.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        # Each sees all processors of the machine; a node of two makes gangs spread as they would.
        "systemReserved": {"cpu": str(max(0, (os.cpu_count() or 1) - NODE_CPUS))},
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "volumeStatsAggPeriod": "-1s",
        # Lowering it may be refused, and nothing here deserves to outlive the rest.
        "oomScoreAdj": 0,
    }


def cni_plugins() -> Path:
    """Where the distribution keeps the network plugins. Raises SandboxError if nowhere."""
    for folder in _CNI_FOLDERS:
        if (Path(folder) / "bridge").exists() and (Path(folder) / "host-local").exists():
            return Path(folder)
    raise SandboxError("no network plugins; install the package containernetworking-plugins")


def _write_network(spec: NodeSpec, folder: Path) -> None:
    """Pods join the node's bridge, which is one link layer with all others: no routes."""
    first, last = spec.pod_range
    addresses = {
        "subnet": f"{_NETWORK}.0.0/{BRIDGE_PREFIX}",
        "rangeStart": first,
        "rangeEnd": last,
        "gateway": BRIDGE_ADDRESS,
    }
    network = {
        "cniVersion": "0.4.0",
        "name": "sandbox",
        "plugins": [
            {
                "type": "bridge",
                "bridge": NODE_BRIDGE,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[addresses]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    target = folder / "cni" / "conf" / "10-sandbox.conflist"
    target.parent.mkdir(parents=True, exist_ok=True)
    _write_json(target, network)


def _write_credentials(sandbox: Sandbox, spec: NodeSpec, folder: Path) -> None:
    """The node is a node to the API server, with no more rights than that."""
    cert, key = folder / "pki" / "node.crt", folder / "pki" / "node.key"
    pki.issue(
        sandbox.pki_dir, cert, key, f"system:node:{spec.name}", organizations=("system:nodes",)
    )
    server = f"https://{sandbox.inside_address}:{sandbox.ports.apiserver}"
    ca = sandbox.pki_dir / "ca.crt"
    kubeconfig.with_certificate(folder / "kubeconfig", server, ca, sandbox.name, cert, key)


def _write_json(target: Path, value: Any) -> None:
    target.write_text(json.dumps(value, indent=1))


def unshare_command(namespace: Path, init: Path, folder: Path, python: str) -> list[str]:
    """Runs a node such that one SIGKILL of the process started here ends all of it at once."""
    return [
        *("nsenter", f"--net={namespace}", "--"),
        *("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"),
        *("--mount-proc", "--", python, "-I", "-S", str(init), str(folder)),
    ]
