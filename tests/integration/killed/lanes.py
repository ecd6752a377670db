"""Tenants with an operator of their own each, used for one run after the other."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from goodput_sandbox.options import REPOSITORY
from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.testing import wait_for
from tests.integration.cluster import Tenant
from tests.integration.killed.stories import PATIENCE

MODULE = "tests.integration.killed.nursery"
PROCESS = "nursery"


class Nursery:
    """Where operators come from, quickly."""

    def __init__(self, sandbox: Sandbox, settings: dict[str, str], folder: Path) -> None:
        self._sandbox, self._socket = sandbox, folder / "socket"
        self._settings = {
            "GOODPUT_KUBECONFIG": str(sandbox.operator_kubeconfig()),
            "GOODPUT_HEALTH_LISTEN": "127.0.0.1:0",
            "GOODPUT_LOG_FORMAT": "text",
            **settings,
        }
        path = f"{REPOSITORY / 'operator'}:{REPOSITORY / 'sandbox'}:{REPOSITORY}"
        environment = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        argv = [sys.executable, "-m", MODULE, str(self._socket)]
        sandbox.spawn(PROCESS, argv, environment)
        wait_for(self._socket.exists, 30, f"{PROCESS}, see {sandbox.log(PROCESS)}")

    def operator(self, namespace: str, orders: Path) -> socket.socket:
        """An operator for a namespace, until the connection is closed."""
        wish = {
            "environment": {**self._settings, "GOODPUT_WATCH_NAMESPACES": namespace},
            "orders": str(orders),
            "log": str(self._sandbox.log(f"operator-{namespace}")),
        }
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket))
        connection.sendall(f"{json.dumps(wish)}\n".encode())
        return connection

    def close(self) -> None:
        """End it; its operators have been ended before."""
        self._sandbox.stop_process(PROCESS, kill=True)


class Lane:
    """A namespace, a queue, nodes, and the operator of that namespace."""

    def __init__(self, sandbox: Sandbox, nursery: Nursery, folder: Path, name: str) -> None:
        self.tenant = Tenant(sandbox, name)
        self.tenant.queue(2)
        self._nursery = nursery
        self._orders = folder / f"{name}.orders"
        self._operator = nursery.operator(name, self._orders)

    def set_up(self, nodes: int) -> None:
        """Have so many nodes, all of them well; what a run has lost or added goes."""
        there = {each["metadata"]["name"]: each for each in self._nodes()}
        well = sorted(name for name, node in there.items() if _is_well(node))
        kept = well[-nodes:]
        if len(kept) < nodes:
            kept += self.tenant.nodes(nodes - len(kept))
        if others := there.keys() - kept:
            self.tenant.sandbox.simulated.delete(*others)

    def _nodes(self) -> list[dict[str, Any]]:
        prefix = f"{self.tenant.name}-"
        nodes = self.tenant.get("nodes")
        return [each for each in nodes if each["metadata"]["name"].startswith(prefix)]

    def order(self, log: Path, before: str | None) -> None:
        """From now on the operator logs its writes, and dies before one of them."""
        new = self._orders.with_suffix(".new")
        new.write_text(f"{log}\n{before or ''}\n")
        new.replace(self._orders)

    def clear(self, job: str) -> None:
        """After a run: no orders, no job, no quota, no pod."""
        self._orders.unlink(missing_ok=True)
        tenant = self.tenant
        tenant.delete("trainingjobs", job)
        tenant.eventually(
            lambda: tenant.used_gpus() == 0 and not tenant.get("workloads"),
            "no quota leaked and no Workload left",
            PATIENCE,
        )
        tenant.delete("pods", grace_seconds=0)

    def close(self) -> None:
        """End the operator, and remove what there is."""
        with closing(self._operator):
            self.tenant.sandbox.kubectl("delete", "namespace", self.tenant.name, "--wait=false")
        if nodes := [each["metadata"]["name"] for each in self._nodes()]:
            self.tenant.sandbox.simulated.delete(*nodes)


def _is_well(node: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
