"""Kubeconfig files, self-contained, so that they work from any namespace and any copy."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(target: Path, server: str, ca: str, name: str, user: dict[str, Any]) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": ca}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(document, sort_keys=False))


def with_certificate(target: Path, server: str, ca: Path, name: str, cert: Path, key: Path) -> None:
    """Write a kubeconfig that authenticates by client certificate."""
    user = {"client-certificate-data": _encoded(cert), "client-key-data": _encoded(key)}
    _write(target, server, _encoded(ca), name, user)


def with_token(source: Path, target: Path, name: str, token: str) -> None:
    """Write a kubeconfig for the cluster of another one, authenticating by token."""
    cluster = yaml.safe_load(source.read_text())["clusters"][0]["cluster"]
    ca = cluster["certificate-authority-data"]
    _write(target, cluster["server"], ca, name, {"token": token})
