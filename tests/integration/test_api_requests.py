"""Case 10: what a job costs the API server is bounded by its size and its attempts."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Tenant
from tests.integration.record import Record
from tests.integration.scrape import creations, requests

WRITES = {"create", "patch", "apply", "update", "delete"}
NOT_OF_JOBS = ("tokenreviews", "secrets", "configmaps")
WRITES_PER_RANK = 4
"""Two creations and a deletion, and a status when others become ready after it."""
WRITES_PER_JOB = 40
"""Statuses, Workload, Service and Events of a life with one lost node; 25 were seen."""
EVICTIONS = 5


def writes(sandbox: Sandbox) -> Counter[tuple[str, str]]:
    """Requests that change something, so far, by verb and resource, refused ones too."""
    found: Counter[tuple[str, str]] = Counter()
    for (verb, resource, _), count in requests(sandbox, WRITES).items():
        if resource not in NOT_OF_JOBS:
            found[verb, resource] += count
    return found


@pytest.mark.parametrize("ranks", [2, 16])
def test_case_10_requests_of_a_life_are_bounded_by_ranks_and_attempts(
    tenant: Tenant, ranks: int
) -> None:
    tenant.nodes(ranks + 1)
    tenant.queue(ranks)
    before, created = writes(tenant.sandbox), creations(tenant.api, "pods")
    job = tenant.submit(replicas=ranks)
    tenant.wait(job, "Running", 60)
    lost = str(tenant.pods(job)[0]["spec"]["nodeName"])
    tenant.sandbox.simulated.kill(lost)
    tenant.wait(job, "Running", 60, attempt=2)
    names = [pod["metadata"]["name"] for pod in tenant.pods(job, 2)]
    tenant.annotate({"sandbox.goodput.dev/complete-after": "0s"}, *names)
    tenant.wait(job, "Complete", 60)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    made = writes(tenant.sandbox) - before
    print(ranks, sum(made.values()), dict(made))
    assert creations(tenant.api, "pods") - created == 2 * ranks, "as the API server counts"
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


def test_case_10_child_creations_over_evictions_are_gang_size_times_attempts(
    tenant: Tenant, record: Record
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    before, created = writes(tenant.sandbox), creations(tenant.api, "pods")
    job = tenant.submit()
    tenant.wait(job, "Running")
    for attempt in range(2, EVICTIONS + 2):
        tenant.stop_queue("HoldAndDrain")
        tenant.eventually(lambda: tenant.used_gpus() == 0 and not tenant.pods(job), "drained", 60)
        tenant.stop_queue("None")
        tenant.wait(job, "Running", 60, attempt=attempt)
    pods = 2 * (EVICTIONS + 1)
    assert creations(tenant.api, "pods") - created == pods
    assert len(record.made("pods", tenant.name, job)) == pods
    assert list(record.made("workloads", tenant.name, job).values()) == [1]
    made = writes(tenant.sandbox) - before
    assert made["create", "workloads"] == 1
    assert made["create", "services"] <= EVICTIONS + 1, "one try for each attempt"
    assert made["delete", "pods"] <= pods
