"""The operator as a process of a sandbox, under its real rights."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .options import REPOSITORY

if TYPE_CHECKING:
    from .sandbox import Sandbox

PROCESS = "goodput-operator"


def start_operator(
    sandbox: Sandbox, settings: Mapping[str, str] | None = None, *, name: str = PROCESS
) -> int:
    """Start it inside the sandbox's network namespace; returns its process id.

    ``settings`` are further ``GOODPUT_*`` variables. Its log is ``sandbox.log(name)``.
    """
    address = f"{sandbox.inside_address}:{sandbox.ports.operator_progress}"
    environment = {
        "PYTHONPATH": str(REPOSITORY / "operator"),
        "PYTHONUNBUFFERED": "1",
        "GOODPUT_KUBECONFIG": str(sandbox.operator_kubeconfig()),
        "GOODPUT_PROGRESS_LISTEN": address,
        "GOODPUT_PROGRESS_ADDRESS": address,
        "GOODPUT_PROGRESS_STATUS_INTERVAL_SECONDS": "1",
        "GOODPUT_HEALTH_LISTEN": f"127.0.0.1:{sandbox.ports.operator_health}",
        "GOODPUT_LOG_FORMAT": "text",
        **(settings or {}),
    }
    return sandbox.spawn(name, [sys.executable, "-m", "goodput_operator"], environment)


def stop_operator(sandbox: Sandbox, *, kill: bool = False, name: str = PROCESS) -> None:
    """End it, by SIGTERM or at once."""
    sandbox.stop_process(name, kill=kill)
