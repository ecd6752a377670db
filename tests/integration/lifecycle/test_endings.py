"""The end of a job, and that it is one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from goodput_sandbox.operator_process import stop_operator
from tests.integration.cluster import COMPLETE, CRASH, NO_RESTARTS, Tenant
from tests.integration.scrape import operator_samples

MAX_SECONDS = 60.0
LASTING = ("phase", "reason", "attempt", "restarts", "conditions", "completionTime")
"""What of the status of a job that is over never changes."""


def alive(tenant: Tenant) -> list[str]:
    """Names of the pods that have not ended, also those that are stopping."""
    over = ("Succeeded", "Failed")
    return [p["metadata"]["name"] for p in tenant.get("pods") if p["status"]["phase"] not in over]


def is_ready(tenant: Tenant) -> bool:
    """Whether the operator has seen the tenant's jobs."""
    return any(
        sample.labels.get("namespace") == tenant.name for sample in operator_samples(tenant.sandbox)
    )


def test_a_crash_is_retried_then_fails_with_its_evidence(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(
        annotations=CRASH,
        faultTolerance={"maxCrashRestarts": 1, "crashBackoff": {"baseSeconds": 1}},
    )
    status = tenant.wait(job, "Failed", timeout=60)
    assert (status["reason"], status["attempt"]) == ("CrashBudgetExhausted", 2)
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert "maxCrashRestarts of 1" in message
    assert "exited with code 3" in message
    running = [p for p in tenant.pods(job) if p["status"]["phase"] == "Running"]
    assert running == []
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")


def test_case_14_a_finished_job_starts_nothing_when_its_children_are_deleted(
    tenant: Tenant, operator: Callable[[], None]
) -> None:
    """Whatever becomes of its children, and also under an operator that knows nothing of before."""
    tenant.nodes(2)
    tenant.queue(4)
    complete = tenant.submit("complete", annotations=COMPLETE)
    failed = tenant.submit("failed", annotations=CRASH, faultTolerance={"maxCrashRestarts": 0})
    before = {"complete": tenant.wait(complete, "Complete", MAX_SECONDS)}
    before["failed"] = tenant.wait(failed, "Failed", MAX_SECONDS)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    for kind in ("workloads", "pods"):
        tenant.delete(kind)
    for service in tenant.get("services"):
        tenant.delete("services", service["metadata"]["name"])
    stop_operator(tenant.sandbox, kill=True)
    operator()
    tenant.eventually(lambda: is_ready(tenant), "operator ready")
    time.sleep(4)  # past the first time that it lists everything anew
    assert [tenant.get(kind) for kind in ("pods", "workloads", "services")] == [[], [], []]
    for job, status in before.items():
        now = tenant.status(job)
        assert [now[each] for each in LASTING] == [status[each] for each in LASTING]


@pytest.mark.parametrize("how", ["crash", "deadline"])
def test_case_22_of_a_failed_job_no_pod_runs_after_its_grace(tenant: Tenant, how: str) -> None:
    grace = 3
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(
        pod_spec={"terminationGracePeriodSeconds": grace}, faultTolerance={"maxCrashRestarts": 0}
    )
    tenant.wait(job, "Running")
    if how == "deadline":
        tenant.patch(job, {"activeDeadlineSeconds": 1})
    else:
        tenant.annotate(CRASH, tenant.pods(job)[0]["metadata"]["name"])
    tenant.wait(job, "Failed", MAX_SECONDS)
    tenant.eventually(lambda: not alive(tenant), "no running pod", grace + 10)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")


def test_case_21_our_own_deletions_never_count_as_failures(tenant: Tenant) -> None:
    """Restart, suspension, eviction, release and deadline: one node is lost, and that is all."""
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", attempt=2)
    tenant.stop_queue("HoldAndDrain")
    tenant.eventually(lambda: tenant.used_gpus() == 0 and not tenant.pods(job), "drained")
    tenant.stop_queue("None")
    assert tenant.wait(job, "Running", MAX_SECONDS, attempt=3)["restarts"] == NO_RESTARTS
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota in use")
    tenant.sandbox.simulated.kill(min(tenant.nodes_of(job)))
    tenant.eventually(lambda: tenant.used_gpus() == 0, "released", MAX_SECONDS)
    assert "QuotaReleased" in tenant.events(job)
    tenant.nodes(1)
    tenant.wait(job, "Running", MAX_SECONDS, attempt=4)
    tenant.patch(job, {"activeDeadlineSeconds": 1})
    status = tenant.wait(job, "Failed", reason="DeadlineExceeded")
    tenant.eventually(lambda: tenant.used_gpus() == 0, "stopped")
    time.sleep(2)
    assert tenant.status(job)["restarts"] == status["restarts"]
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    events = tenant.events(job)
    assert [each for each in events if each in ("NodeLost", "PodLost", "RankCrashed")] == [
        "NodeLost"
    ]


def test_the_time_to_live_deletes_a_finished_job(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    tenant.submit(annotations=COMPLETE, ttlSecondsAfterFinished=2)
    tenant.eventually(lambda: not tenant.get("trainingjobs"), "job deleted")


def test_the_deadline_ends_a_job(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(activeDeadlineSeconds=3)
    status = tenant.wait(job, "Failed")
    assert status["reason"] == "DeadlineExceeded"


def test_a_deleted_job_leaves_nothing(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.sandbox.kubectl("delete", "trainingjob", job, "-n", tenant.name)
    tenant.eventually(
        lambda: not tenant.get("pods") and not tenant.get("workloads.kueue.x-k8s.io"),
        "children gone",
    )
    assert tenant.used_gpus() == 0
