"""Storage that all nodes of a sandbox share: they are on one machine, so it is a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sandbox import Sandbox


def shared_volume(sandbox: Sandbox, namespace: str, claim: str, size: str = "10Gi") -> Path:
    """A ReadWriteMany volume for a claim of that name; the folder that it is on this machine."""
    folder = sandbox.state_dir / "volumes" / namespace / claim
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # Whatever user the containers run as.
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{claim}"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": size},
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": str(folder)},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        },
    }
    sandbox.kubectl("apply", "-f", "-", input=json.dumps(volume))
    return folder
