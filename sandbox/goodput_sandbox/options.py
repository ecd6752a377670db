"""What can be asked of a sandbox, and where it keeps its things."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

BRIDGE = "br0"
BRIDGE_ADDRESS = "10.77.0.1"
BRIDGE_PREFIX = 16
SERVICE_RANGE = "10.96.0.0/16"
CLUSTER_DOMAIN = "cluster.local"

# Dashes are left out of names so that `gp-NAME-…` can belong to one sandbox only.
_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")


class SandboxError(Exception):
    """The sandbox could not do what was asked; the message says why and what helps."""


@dataclass(frozen=True)
class SandboxOptions:
    """How a sandbox is started. Two equal values mean that a running one can be reused."""

    simulated_nodes: int = 0
    real_nodes: int = 0
    node_monitor_grace_seconds: int = 8
    kueue: bool = True
    kueue_integrations: tuple[str, ...] = ("batch/job",)
    kueue_external_frameworks: tuple[str, ...] = ("TrainingJob.v1alpha1.goodput.dev",)
    kueue_config: Mapping[str, Any] = field(default_factory=dict)
    """Merged over Kueue's configuration file, for example `waitForPodsReady`."""
    dns: bool = True
    rootless: bool = False
    """Do without network namespace and real nodes even when root."""
    apply_repository: bool = True
    """Apply the repository's `crds/*.yaml` and `sandbox/manifests/*.yaml` after start."""

    def as_dict(self) -> dict[str, Any]:
        """The options as JSON values, to compare with those of a running sandbox."""
        values = asdict(self)
        values["kueue_config"] = dict(self.kueue_config)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def cache_root() -> Path:
    """Where binaries and state are kept: under $XDG_CACHE_HOME, by default ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "goodput-operator"


def sandboxes_root() -> Path:
    """The folder with one state folder per sandbox."""
    return cache_root() / "sandboxes"


def checked_name(name: str) -> str:
    """The name itself, if it may be used in names of namespaces, links and cgroups."""
    if not _NAME.fullmatch(name):
        raise SandboxError(f"sandbox name {name!r}: letters a-z and digits only, at most 20")
    return name


def is_root() -> bool:
    """Whether network namespaces and real nodes can be made."""
    return os.geteuid() == 0


@dataclass(frozen=True)
class Ports:
    """Ports within the sandbox's network namespace (or of the host, without root)."""

    apiserver: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    controller_manager: int = 10257
    scheduler: int = 10259
    kwok: int = 10247
    kueue_webhook: int = 9443
    kueue_metrics: int = 8443
    kueue_health: int = 8081
    operator_progress: int = 8445
    operator_health: int = 8090
