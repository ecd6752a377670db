"""Cases 4 and 18: many evictions, one Workload; preemptions count as what they are."""

from __future__ import annotations

from tests.integration.api import path_of
from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.kueue.conftest import WORKLOADS, workload

EVICTIONS = 50
PREEMPTIONS = 5


def evict(tenant: Tenant, job: str) -> None:
    """Have Kueue evict the job: an admission check wants it to be tried again."""
    found = workload(tenant, job)
    checks = [{**each, "state": "Retry"} for each in found["status"]["admissionChecks"]]
    path = path_of("workloads", tenant.name, found["metadata"]["name"])
    tenant.api.request("PATCH", f"{path}/status", {"status": {"admissionChecks": checks}})


def test_case_04_after_fifty_evictions_there_is_one_workload(tenant: Tenant) -> None:
    tenant.nodes(1)
    tenant.queue(1, check=True)
    job = tenant.submit(replicas=1)
    tenant.wait(job, "Running")
    uid = workload(tenant, job)["metadata"]["uid"]
    for attempt in range(2, EVICTIONS + 2):
        evict(tenant, job)
        tenant.wait(job, "Running", 30, attempt=attempt)
    assert [each["metadata"]["uid"] for each in tenant.get(WORKLOADS)] == [uid]
    assert len(tenant.get("pods")) == 1
    assert tenant.status(job)["restarts"] == NO_RESTARTS
    assert len(tenant.status(job)["attempts"]) <= 10, "a bounded history"


def test_case_18_five_preemptions_are_five_preemptions_and_no_crash(tenant: Tenant) -> None:
    tenant.nodes(1)
    tenant.queue(1)
    for name, value in (("low", 1), ("high", 100)):
        tenant.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": f"{tenant.name}-{name}"},
                "value": value,
            }
        )
    low = tenant.submit("low", 1, priority=f"{tenant.name}-low")
    tenant.wait(low, "Running")
    high = tenant.submit("high", 1, priority=f"{tenant.name}-high")
    for preempted in range(1, PREEMPTIONS + 1):
        tenant.wait(high, "Running")
        tenant.wait(low, "Queued", restarts={**NO_RESTARTS, "preemption": preempted})
        tenant.patch(high, {"suspend": True})
        tenant.wait(low, "Running", attempt=preempted + 1)
        if preempted < PREEMPTIONS:
            tenant.patch(high, {"suspend": False})
    status = tenant.status(low)
    assert status["restarts"] == {**NO_RESTARTS, "preemption": PREEMPTIONS}
    assert {each["outcome"] for each in status["attempts"]} == {"Preempted"}
