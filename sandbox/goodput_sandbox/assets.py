"""Manifests taken from the upstream modules, beside the binaries built from them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from .options import SandboxError

VERSION = 1
"""To be raised when this file takes something else, so that caches are made anew."""

KUEUE_NAMESPACE = "kueue-system"

_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
_KUEUE_KINDS = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ConfigMap",
)


def complete(folder: Path) -> bool:
    """Whether everything has been taken."""
    return (folder / "complete").exists()


def extract(helm: Path, module_dir: Callable[[str], Path], folder: Path) -> None:
    """Take KWOK's stages and Kueue's rendered chart from their modules."""
    shutil.rmtree(folder, ignore_errors=True)
    stages = folder / "stages"
    stages.mkdir(parents=True)
    source = module_dir("sigs.k8s.io/kwok") / "kustomize" / "stage"
    for stage in _STAGES:
        # Go's module cache is read-only; the copies are to be deletable.
        (stages / Path(stage).name).write_text((source / stage).read_text())
    chart = module_dir("sigs.k8s.io/kueue") / "charts" / "kueue"
    (folder / "kueue.yaml").write_text(yaml.safe_dump_all(_kueue(helm, chart)))
    (folder / "complete").touch()


def _kueue(helm: Path, chart: Path) -> list[dict[str, Any]]:
    """What Kueue's chart installs, without its Deployment and Services."""
    command = [str(helm), "template", "kueue", str(chart), "--namespace", KUEUE_NAMESPACE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SandboxError(f"helm template of Kueue's chart: {done.stderr.strip()}")
    documents = [d for d in yaml.safe_load_all(done.stdout) if d]
    return [d for d in documents if d["kind"] in _KUEUE_KINDS]
