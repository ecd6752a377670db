"""Cases 4 and 10: what a job costs the API server is bounded by its size and its attempts."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Tenant

pytestmark = pytest.mark.extended

WRITES = {"create", "patch", "apply", "update", "delete"}
WORKLOADS = "workloads.kueue.x-k8s.io"
WRITES_PER_RANK = 4
"""Two creations and a deletion, and a status when others become ready after it."""
WRITES_PER_JOB = 40
"""Statuses, Workload, Service and Events of a life with one lost node; 25 were seen."""


def writes(sandbox: Sandbox) -> Counter[tuple[str, str]]:
    """Requests that change something, so far, by verb and resource."""
    port = sandbox.forward(sandbox.ports.operator_health)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            verb, resource = sample.labels.get("verb"), sample.labels.get("resource")
            if sample.name != "goodput_operator_api_requests_total" or verb not in WRITES:
                continue
            if resource not in ("tokenreviews", "secrets", "configmaps"):
                found[verb, str(resource)] += int(sample.value)
    return found


@pytest.mark.parametrize("ranks", [2, 16])
def test_case_10_requests_of_a_life_are_bounded_by_ranks_and_attempts(
    tenant: Tenant, ranks: int
) -> None:
    tenant.nodes(ranks + 1)
    tenant.queue(ranks)
    before = writes(tenant.sandbox)
    job = tenant.submit(replicas=ranks)
    tenant.wait(job, "Running", 60)
    lost = str(tenant.pods(job)[0]["spec"]["nodeName"])
    tenant.sandbox.simulated.kill(lost)
    tenant.wait(job, "Running", 60, attempt=2)
    names = [pod["metadata"]["name"] for pod in tenant.pods(job, 2)]
    done = "sandbox.goodput.dev/complete-after=0s"
    tenant.sandbox.kubectl("annotate", "pod", *names, done, "-n", tenant.name)
    tenant.wait(job, "Complete", 60)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    made = writes(tenant.sandbox) - before
    print(ranks, sum(made.values()), dict(made))
    assert made["create", "pods"] == 2 * ranks, "one creation for each rank of each attempt"
    assert made["create", "workloads"] == 1
    assert made["create", "services"] <= 2, "one try for each attempt"
    assert made["delete", "pods"] <= 2 * ranks
    assert sum(made.values()) <= WRITES_PER_RANK * ranks + WRITES_PER_JOB, made


def test_case_10_a_job_that_runs_quietly_is_not_written_to(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    time.sleep(3)
    before = writes(tenant.sandbox)
    time.sleep(10)
    assert writes(tenant.sandbox) - before == Counter()


def test_case_04_after_ten_evictions_there_is_one_workload(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    uid = tenant.get(WORKLOADS)[0]["metadata"]["uid"]
    before = writes(tenant.sandbox)
    for attempt in range(1, 11):
        tenant.stop_queue("HoldAndDrain")
        tenant.eventually(lambda: tenant.used_gpus() == 0 and not tenant.pods(job), "drained", 60)
        tenant.stop_queue("None")
        tenant.wait(job, "Running", 60, attempt=attempt + 1)
    assert [each["metadata"]["uid"] for each in tenant.get(WORKLOADS)] == [uid]
    assert len(tenant.pods(job)) == 2
    made = writes(tenant.sandbox) - before
    assert made["create", "pods"] == 10 * 2, "one creation for each rank of each attempt"
