"""Pods that somebody else refuses or changes on their way in: webhooks, quotas, policies."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goodput_sandbox import pki
from goodput_sandbox.operator_process import PROCESS, start_operator, stop_operator
from goodput_sandbox.options import REPOSITORY
from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import NO_RESTARTS, Manifest, Tenant
from tests.integration.conftest import SHORT
from tests.integration.edits import hands
from tests.integration.edits.webhook import SAYS
from tests.integration.scrape import requests

SETTINGS = {
    **SHORT,
    "GOODPUT_BIND_SECONDS": "3",
    "GOODPUT_REQUEUE_BASE_SECONDS": "1",
    "GOODPUT_PLACEMENT_TRIES": "2",
}
WEBHOOK = "third-party-webhook"
PORT = 9777
KINDS = ("validating", "mutating")


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, operator: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """An operator that gives up sooner, instead of the usual one."""

    def start() -> None:
        if not sandbox.processes.alive(PROCESS):
            start_operator(sandbox, SETTINGS)

    stop_operator(sandbox)
    start()
    yield start
    stop_operator(sandbox)
    operator()


@pytest.fixture(scope="module")
def server(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the third party's webhook."""
    folder = tmp_path_factory.mktemp("webhook")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    pki.issue(sandbox.pki_dir, certificate, key, WEBHOOK, addresses=("127.0.0.1",))
    argv = [sys.executable, "-m", "tests.integration.edits.webhook", str(certificate), str(key)]
    environment = {"PYTHONPATH": str(REPOSITORY)}
    sandbox.spawn(WEBHOOK, [*argv, "127.0.0.1", str(PORT)], environment)
    yield f"https://127.0.0.1:{PORT}"
    sandbox.stop_process(WEBHOOK, kill=True)


Install = Callable[[str], None]


@pytest.fixture
def install(tenant: Tenant, server: str) -> Iterator[Install]:
    """Has the webhook called for the tenant's pods, with a path; ``""`` takes it away again."""

    def put(path: str) -> None:
        for kind in KINDS:
            full = f"{kind}webhookconfiguration"
            tenant.sandbox.kubectl("delete", full, tenant.name, "--ignore-not-found")
        if path:
            bundle = base64.b64encode((tenant.sandbox.pki_dir / "ca.crt").read_bytes()).decode()
            client = {"url": server + path, "caBundle": bundle}
            mutating = path.startswith(("/mutate", "/elsewhere"))
            tenant.apply(_configuration(tenant.name, client, mutating))
            _in_force(tenant, path)

    yield put
    put("")


def _in_force(tenant: Tenant, path: str) -> None:
    """Wait until a pod of a second rank would be refused, or changed."""
    container = {"name": "main", "image": "x"}
    labels = {"goodput.dev/rank": "1"}
    metadata = {"name": "probe", "namespace": tenant.name, "labels": labels}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "containers": [container],
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"nodeAffinity": required},
    }
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def does() -> bool:
        done = tenant.kubectl.run(
            *("create", "--dry-run=server", "-f", "-", "-o", "json"), stdin=pod
        )
        if done.returncode:
            return True
        made = json.loads(done.stdout)
        return "mesh" in made["metadata"]["labels"] or path.split("/")[-1] in done.stdout

    tenant.eventually(does, "the webhook is called")


def _configuration(name: str, client: Manifest, mutating: bool) -> Manifest:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    hook = {
        "name": "pods.third.party",
        "clientConfig": client,
        "rules": [{**rule, "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def _object(tenant: Tenant, kind: str, spec: Any) -> Manifest:
    metadata = {"name": "limits", "namespace": tenant.name}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def _quota(tenant: Tenant) -> Callable[[], Any]:
    tenant.apply(_object(tenant, "ResourceQuota", {"hard": {"pods": "1"}}))
    return lambda: tenant.sandbox.kubectl("delete", "quota", "limits", "-n", tenant.name)


def _security(tenant: Tenant) -> Callable[[], Any]:
    label = "pod-security.kubernetes.io/enforce"
    tenant.sandbox.kubectl("label", "namespace", tenant.name, f"{label}=restricted")
    return lambda: tenant.sandbox.kubectl("label", "namespace", tenant.name, f"{label}-")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("/refuse", SAYS),
        ("/hang", "pods.third.party"),
        (_quota, "exceeded quota: limits"),
        (_security, 'violates PodSecurity "restricted'),
    ],
    ids=["webhook refuses", "webhook hangs", "ResourceQuota", "PodSecurity"],
)
def test_a_gang_of_which_a_pod_is_refused_is_withdrawn_and_gives_its_quota_back(
    tenant: Tenant, install: Install, how: str | Callable[[Tenant], Callable[[], Any]], said: str
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    if isinstance(how, str):
        install(how)
    mend = how(tenant) if callable(how) else lambda: install("")
    before = requests(tenant.sandbox, {"create"})
    job = tenant.submit()
    tenant.eventually(lambda: said in _running(tenant, job), "told at once", 15)
    tenant.eventually(lambda: "QuotaReleased" in tenant.events(job), "quota given back", 60)
    status = tenant.status(job)
    records = status["attempts"]
    assert {each["outcome"] for each in records} == {"Unschedulable"}
    assert said in records[-1]["message"]
    assert status["restarts"] == NO_RESTARTS
    created = requests(tenant.sandbox, {"create"}) - before
    pods = sum(count for (_, resource, _), count in created.items() if resource == "pods")
    assert pods <= 2 * 10 * len(records), "no loop"
    mend()
    tenant.wait(job, "Running", 90, ready="2/2")
    hands.consistent(tenant, job)
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota in use once")


def _running(tenant: Tenant, job: str) -> str:
    conditions = tenant.status(job).get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "Running"), "")


def test_pods_that_a_webhook_and_a_limit_range_add_to_run_where_they_were_placed(
    tenant: Tenant, install: Install
) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    install("/mutate")
    limit = {"type": "Container", "default": {"cpu": "2"}}
    tenant.apply(_object(tenant, "LimitRange", {"limits": [limit]}))
    job = tenant.submit()
    tenant.wait(job, "Running", 60, ready="2/2")
    hands.consistent(tenant, job)
    for pod in tenant.pods(job):
        assert pod["metadata"]["labels"]["mesh"] == "yes"
        assert len(pod["spec"]["containers"]) == 2
    tenant.sandbox.simulated.delete(sorted(tenant.status(job)["placement"]["nodes"])[0])
    tenant.wait(job, "Running", 60, ready="2/2", attempt=2)


def test_a_rank_that_a_webhook_sends_elsewhere_is_lost_with_the_node_that_it_is_on(
    tenant: Tenant, install: Install
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    others = tenant.sandbox.add_simulated_nodes(1, prefix=f"{tenant.name}-x", accelerators=1)
    spare = others[0]
    tenant.sandbox.kubectl("label", "node", spare, f"goodput.dev/test-tenant={tenant.name}")
    tenant.sandbox.kubectl("taint", "node", spare, "shunned=yes:NoSchedule")
    install(f"/elsewhere/{spare}")
    job = tenant.submit()
    tenant.wait(job, "Running", 60, ready="2/2")
    assert spare in tenant.nodes_of(job)
    install("")
    tenant.sandbox.simulated.delete(spare)
    status = tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert spare in status["attempts"][0]["lostNodes"]
    hands.consistent(tenant, job)


def test_a_limit_range_that_would_refuse_the_pods_keeps_the_job_in_its_queue(
    tenant: Tenant,
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    limit = {"type": "Container", "max": {"nvidia.com/gpu": "0"}}
    tenant.apply(_object(tenant, "LimitRange", {"limits": [limit]}))
    job = tenant.submit()
    tenant.eventually(lambda: "LimitRange" in _running(tenant, job), "told")
    assert tenant.status(job)["phase"] == "Queued"
    assert tenant.pods(job) == []
