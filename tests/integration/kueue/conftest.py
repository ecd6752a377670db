"""What Kueue can do to jobs: it is killed, hangs, and its webhooks fail. All is mended again."""

from __future__ import annotations

import copy
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from goodput_sandbox import kueue as sandbox_kueue
from goodput_sandbox import pki
from goodput_sandbox.operator_process import stop_operator
from goodput_sandbox.options import REPOSITORY
from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Manifest, Tenant

WORKLOADS = "workloads.kueue.x-k8s.io"
FAILING = "failing-webhook"
REVIEWERS = ("mutating", "validating")
OF_WORKLOADS = ("mworkload.kb.io", "vworkload.kb.io")
HANGS_SECONDS = 6
"""Time-out of a webhook that hangs: longer than the operator takes to say so, not as long as 10."""
NOWHERE = "https://127.0.0.1:1"
SECONDS = 10.0
"""Within which a condition has to say what is wrong."""
SOON = 15.0
"""Within which all is right again after a trouble is over."""


class Kueue:
    """The Kueue of the sandbox, and how it fails."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox, self._folder = sandbox, folder
        self._webhooks: dict[str, Manifest] = {}
        self._config = sandbox_kueue.config_file(sandbox).read_text()

    def kill(self) -> None:
        """It is gone, and with it all of its webhooks."""
        self._sandbox.stop_process(sandbox_kueue.PROCESS, kill=True)

    def start(self) -> None:
        """It is back, and its webhooks answer."""
        self._sandbox.restart_process(sandbox_kueue.PROCESS)
        sandbox_kueue.wait_ready(self._sandbox)

    def restart(self) -> None:
        """Gone, and back at once."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """It hangs: webhooks are called, and never answer."""
        self._change(timeoutSeconds=HANGS_SECONDS)
        self._sandbox.freeze(sandbox_kueue.PROCESS)

    def thaw(self) -> None:
        """It hangs no longer."""
        self._sandbox.thaw(sandbox_kueue.PROCESS)

    def configure(self, **config: Any) -> None:
        """Another configuration, merged over its own, until the test is over."""
        merged = sandbox_kueue.merge(yaml.safe_load(self._config), config)
        sandbox_kueue.config_file(self._sandbox).write_text(yaml.safe_dump(merged))
        self.restart()

    def misdirect(self, url: str = NOWHERE) -> None:
        """The webhooks of Workloads are somewhere else, and nowhere by default."""
        self._change(clientConfig={"url": url})

    def break_webhooks(self) -> None:
        """The webhooks of Workloads answer with HTTP 500."""
        if not self._sandbox.processes.alive(FAILING):
            self._serve_failing()
        port = (self._folder / "port").read_text()
        self.misdirect(f"https://127.0.0.1:{port}")

    def mend_webhooks(self) -> None:
        """They are where they were."""
        for manifest in self._webhooks.values():
            self._write(manifest)
        self._webhooks.clear()

    def mend(self) -> None:
        """Everything is as it was before the test."""
        self.mend_webhooks()
        file = sandbox_kueue.config_file(self._sandbox)
        if file.read_text() != self._config:
            file.write_text(self._config)
            self.kill()
        if self._sandbox.processes.alive(sandbox_kueue.PROCESS):
            self.thaw()
            sandbox_kueue.wait_ready(self._sandbox)
        else:
            self.start()
        self._sandbox.stop_process(FAILING, kill=True)

    def _change(self, **fields: Any) -> None:
        """Fields of the webhooks of Workloads, merged into what they are."""
        for kind in REVIEWERS:
            if kind not in self._webhooks:
                self._webhooks[kind] = self._read(kind)
            changed = copy.deepcopy(self._webhooks[kind])
            changed["webhooks"] = [
                sandbox_kueue.merge(hook, fields) if hook["name"] in OF_WORKLOADS else hook
                for hook in changed["webhooks"]
            ]
            self._write(changed)
        time.sleep(1)  # The API server watches its webhooks' configurations.

    def _serve_failing(self) -> None:
        certificate, key, file = (self._folder / name for name in ("crt", "key", "port"))
        pki.issue(self._sandbox.pki_dir, certificate, key, FAILING, addresses=("127.0.0.1",))
        argv = [sys.executable, "-m", "tests.integration.kueue.failing_webhook"]
        argv += map(str, (certificate, key, file))
        self._sandbox.spawn(FAILING, argv, {"PYTHONPATH": f"{REPOSITORY / 'sandbox'}:{REPOSITORY}"})
        self._sandbox.wait_until(file.exists, 30, "failing webhook", FAILING)

    def _read(self, kind: str) -> Manifest:
        name = f"kueue-{kind}-webhook-configuration"
        found: Manifest = json.loads(
            self._sandbox.kubectl("get", f"{kind}webhookconfiguration", name, "-o", "json")
        )
        for field in ("resourceVersion", "managedFields", "uid", "generation"):
            found["metadata"].pop(field, None)
        return found

    def _write(self, manifest: Manifest) -> None:
        self._sandbox.kubectl("replace", "-f", "-", input=json.dumps(manifest))


@pytest.fixture
def kueue(sandbox: Sandbox, tmp_path: Path) -> Iterator[Kueue]:
    """Kueue, which is well again after the test."""
    made = Kueue(sandbox, tmp_path)
    yield made
    made.mend()


def condition(tenant: Tenant, job: str, kind: str = "Running") -> Manifest:
    """A condition of a job; empty while there is none."""
    found = (c for c in tenant.status(job).get("conditions", []) if c["type"] == kind)
    return next(found, {})


def told(tenant: Tenant, job: str, *reasons: str, seconds: float = SECONDS) -> str:
    """The message with which a condition tells one of these reasons."""
    tenant.eventually(
        lambda: condition(tenant, job).get("reason") in reasons, f"one of {reasons}", seconds
    )
    message: str = condition(tenant, job)["message"]
    return message


def uids(tenant: Tenant, job: str) -> set[str]:
    """UIDs of a job's pods."""
    return {pod["metadata"]["uid"] for pod in tenant.pods(job)}


def workload(tenant: Tenant, job: str) -> Manifest:
    """The one Workload of a job."""
    found = [
        each
        for each in tenant.get(WORKLOADS)
        if each["metadata"]["ownerReferences"][0]["name"] == job
    ]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def is_true(raw: Manifest, kind: str) -> bool:
    """Whether a condition of an object is True."""
    conditions = raw.get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def patch(tenant: Tenant, kind: str, name: str, spec: Manifest, *arguments: str) -> None:
    """A merge patch, as an administrator."""
    tenant.sandbox.kubectl(
        *("patch", kind, name, "-n", tenant.name, "--type=merge", "-p", json.dumps(spec)),
        *arguments,
    )


def samples(tenant: Tenant, name: str, job: str) -> list[float]:
    """Values of a metric of a job; none while it has none."""
    port = tenant.sandbox.forward(tenant.sandbox.ports.operator_health)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
        and (sample.labels.get("namespace"), sample.labels.get("job_name")) == (tenant.name, job)
    ]


def admitted_unseen(tenant: Tenant) -> str:
    """A job that Kueue has admitted while no operator runs."""
    tenant.stop_queue("Hold")
    job = tenant.submit()
    tenant.eventually(lambda: len(tenant.get(WORKLOADS)) == 1, "its Workload")
    stop_operator(tenant.sandbox, kill=True)
    tenant.stop_queue("None")
    tenant.eventually(lambda: is_true(workload(tenant, job), "Admitted"), "admitted")
    assert tenant.pods(job) == []
    return job


@pytest.fixture
def room(tenant: Tenant) -> Tenant:
    """A tenant with two nodes and quota for both."""
    tenant.nodes(2)
    tenant.queue(2)
    return tenant
