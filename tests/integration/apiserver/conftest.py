"""The operator of these tests reaches the API server through a proxy that makes things go wrong."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from goodput_sandbox import pki
from goodput_sandbox.operator_process import PROCESS, start_operator, stop_operator
from goodput_sandbox.options import REPOSITORY
from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.testing import wait_for
from tests.integration.apiserver.faults import Faults
from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.conftest import SHORT
from tests.integration.record import Record

PROXY = "apiserver-proxy"
SETTINGS = {
    **SHORT,
    "GOODPUT_LIVENESS_SECONDS": "20",
    # An API server that is slow is no reason to withdraw a gang.
    "GOODPUT_BIND_SECONDS": "60",
    # An API server that was away makes all nodes look silent for a moment.
    "GOODPUT_SILENCE_WINDOW_SECONDS": "8",
}


class ProxyControl:
    """Switches faults on and off."""

    def __init__(self, sandbox: Sandbox, control: int, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        """The operator's way through it."""
        self._url = f"http://127.0.0.1:{sandbox.forward(control)}"

    def set(self, **faults: Any) -> None:
        """These faults from now on, and no others."""
        body = Faults(**faults).to_json().encode()
        request = urllib.request.Request(f"{self._url}/faults", body, method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def seen(self) -> Counter[str]:
        """How often what has happened since the faults were set."""
        with urllib.request.urlopen(f"{self._url}/seen", timeout=10) as answer:
            return Counter(json.load(answer))


@pytest.fixture(scope="module")
def proxy(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyControl]:
    """The proxy in front of the API server."""
    folder = tmp_path_factory.mktemp("proxy")
    ports = _start_proxy(sandbox, folder)
    yield ProxyControl(sandbox, ports["control"], _kubeconfig(sandbox, folder, ports["port"]))
    sandbox.stop_process(PROXY, kill=True)


@pytest.fixture(scope="module")
def operator(
    sandbox: Sandbox, proxy: ProxyControl, operator: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """The operator behind the proxy instead of the usual one; calling it starts it if need be."""
    settings = {**SETTINGS, "GOODPUT_KUBECONFIG": str(proxy.kubeconfig)}

    def start() -> None:
        if not sandbox.processes.alive(PROCESS):
            start_operator(sandbox, settings)

    stop_operator(sandbox)
    start()
    yield start
    stop_operator(sandbox)
    operator()


def _start_proxy(sandbox: Sandbox, folder: Path) -> dict[str, int]:
    certificate, key, file = folder / "proxy.crt", folder / "proxy.key", folder / "ports.json"
    pki.issue(sandbox.pki_dir, certificate, key, PROXY, addresses=(sandbox.inside_address,))
    upstream = f"https://{sandbox.inside_address}:{sandbox.ports.apiserver}"
    argv = [sys.executable, "-m", "tests.integration.apiserver.proxy", upstream]
    argv += map(str, (sandbox.pki_dir / "ca.crt", certificate, key))
    argv += [sandbox.inside_address, str(file)]
    sandbox.spawn(PROXY, argv, {"PYTHONPATH": f"{REPOSITORY / 'sandbox'}:{REPOSITORY}"})
    sandbox.wait_until(file.exists, 30, "proxy", PROXY)
    ports: dict[str, int] = json.loads(file.read_text())
    return ports


def _kubeconfig(sandbox: Sandbox, folder: Path, port: int) -> Path:
    """The operator's own, with the proxy's address in it."""
    document = yaml.safe_load(sandbox.operator_kubeconfig().read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://{sandbox.inside_address}:{port}"
    target = folder / "kubeconfig"
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(document))
    return target


@dataclass
class Stage:
    """A tenant with two jobs that run: one to which things happen, and one that only stands by."""

    tenant: Tenant
    proxy: ProxyControl
    job: str = "job"
    bystander: str = "bystander"

    def uids(self, job: str) -> set[str]:
        """UIDs of a job's pods, whatever becomes of them."""
        return {
            pod["metadata"]["uid"]
            for pod in self.tenant.get("pods")
            if pod["metadata"]["labels"].get("goodput.dev/job") == job
        }

    def hold(self, seconds: float, job: str | None = None) -> None:
        """Nothing changes for so long: neither a job's pods, nor what was counted."""
        job = job or self.job
        before = self.uids(job), self.tenant.status(job)
        time.sleep(seconds)
        after = self.uids(job), self.tenant.status(job)
        assert after[0] == before[0]
        for name in ("attempt", "restarts", "attempts", "placement"):
            assert after[1].get(name) == before[1].get(name), name

    def lose_node(self) -> str:
        """A node of the job is lost."""
        lost = str(sorted(self.tenant.status(self.job)["placement"]["nodes"])[0])
        self.tenant.sandbox.simulated.kill(lost)
        return lost

    def delete_node(self) -> str:
        """A node of the job is deleted."""
        lost = str(sorted(self.tenant.status(self.job)["placement"]["nodes"])[0])
        self.tenant.sandbox.simulated.delete(lost)
        return lost

    def delete_pod(self) -> None:
        """Somebody deletes a pod of the job."""
        name = self.tenant.pods(self.job)[0]["metadata"]["name"]
        self.tenant.sandbox.kubectl("delete", "pod", name, "-n", self.tenant.name, "--wait=false")

    def restarted(self, timeout: float, lost: str | None = None) -> None:
        """The job runs in its second attempt, for a reason that is not its own."""
        status = self.tenant.wait(self.job, "Running", timeout, attempt=2, ready="2/2")
        assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
        assert lost not in status["placement"]["nodes"]

    def healthz(self) -> int:
        """HTTP status of the operator's liveness probe."""
        port = self.tenant.sandbox.forward(self.tenant.sandbox.ports.operator_health)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture
def stage(proxy: ProxyControl, tenant: Tenant, record: Record) -> Iterator[Stage]:
    """Both jobs run; whatever a test does, the bystander is left alone and all is counted once."""
    stage = Stage(tenant, proxy)
    operator = tenant.sandbox.processes.get(PROCESS)
    tenant.nodes(6)
    tenant.queue(6)
    tenant.submit(stage.bystander, replicas=1)
    tenant.submit(stage.job, replicas=2)
    tenant.wait(stage.bystander, "Running", ready="1/1")
    tenant.wait(stage.job, "Running", ready="2/2")
    pods = stage.uids(stage.bystander)
    try:
        yield stage
    finally:
        proxy.set()
    _settled(stage, pods, record)
    assert tenant.sandbox.processes.get(PROCESS) == operator
    assert tenant.sandbox.processes.alive(PROCESS), "the operator has ended"


def _settled(stage: Stage, bystanders: set[str], record: Record) -> None:
    tenant = stage.tenant
    status = tenant.status(stage.bystander)
    assert stage.uids(stage.bystander) == bystanders
    assert (status["phase"], status["attempt"]) == ("Running", 1)
    assert status["restarts"] == NO_RESTARTS
    for job in tenant.get("trainingjobs"):
        name, attempt = job["metadata"]["name"], job["status"]["attempt"]
        live = {p["metadata"]["labels"]["goodput.dev/attempt"] for p in tenant.pods(name)}
        assert live <= {str(attempt)}
        for kind in ("pods", "workloads"):
            made = record.made(kind, tenant.name, name)
            assert set(made.values()) <= {1}, f"made twice: {made}"
        assert len(record.made("workloads", tenant.name, name)) == 1
        placements = record.placements(tenant.name, name)
        assert all(len(times) == 1 for times in placements.values()), placements


def eventually_well(stage: Stage, timeout: float) -> None:
    """The liveness probe succeeds again."""
    wait_for(lambda: stage.healthz() == 200, timeout, "a healthy operator", interval=0.5)
