"""From the queue to running, and back: Kueue says whether and on what."""

from __future__ import annotations

import json

import pytest

from tests.integration.cluster import COMPLETE, NO_RESTARTS, Tenant, kueue


@pytest.mark.parametrize("check", [False, True], ids=["plain queue", "queue with our check"])
def test_a_job_is_admitted_runs_and_completes(tenant: Tenant, check: bool) -> None:
    tenant.nodes(2)
    tenant.queue(2, check=check)
    job = tenant.submit(annotations=COMPLETE)
    status = tenant.wait(job, "Complete")
    assert status["attempt"] == 1
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    events = tenant.events(job)
    assert events == ["Queued", "GangPlaced", "Admitted", "GangStarted", "Completed"]
    workload = tenant.get("workloads.kueue.x-k8s.io")[0]
    finished = [c for c in workload["status"]["conditions"] if c["type"] == "Finished"]
    assert (finished[0]["status"], finished[0]["reason"]) == ("True", "Succeeded")


def test_the_flavour_that_kueue_assigned_decides_where_pods_go(tenant: Tenant) -> None:
    mine = tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running", ready="2/2")
    assert tenant.nodes_of(job) == set(mine)


def test_a_preempted_job_makes_way_and_comes_back(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    for name, value in (("low", 1), ("high", 100)):
        metadata = {"name": f"{tenant.name}-{name}"}
        tenant.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": metadata,
                "value": value,
            }
        )
    low = tenant.submit("low", priority=f"{tenant.name}-low")
    tenant.wait(low, "Running")
    high = tenant.submit("high", priority=f"{tenant.name}-high")
    tenant.wait(high, "Running")
    status = tenant.wait(low, "Queued")
    assert status["restarts"] == {**NO_RESTARTS, "preemption": 1}
    assert tenant.pods(low) == []
    tenant.patch(high, {"suspend": True})
    tenant.wait(low, "Running", attempt=2)
    assert "Evicted" in tenant.events(low)


def test_a_stopped_queue_evicts_and_takes_back(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.stop_queue("HoldAndDrain")
    tenant.eventually(lambda: tenant.used_gpus() == 0 and not tenant.pods(job), "job drained")
    tenant.stop_queue("None")
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == NO_RESTARTS


def test_somebody_elses_deactivation_is_told_and_undone_by_suspend_and_resume(
    tenant: Tenant,
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    workload = tenant.get("workloads.kueue.x-k8s.io")[0]["metadata"]["name"]
    tenant.sandbox.kubectl(
        *("patch", "workload.kueue.x-k8s.io", workload, "-n", tenant.name, "--type=merge"),
        '--patch={"spec": {"active": false}}',
    )
    tenant.wait(job, "Pending", reason="Deactivated")
    assert tenant.pods(job) == []
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", attempt=2)


def test_a_changed_queue_label_moves_a_waiting_job(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(queue="nowhere")
    tenant.eventually(lambda: tenant.status(job).get("reason") == "Inadmissible", "condition", 10)
    tenant.sandbox.kubectl(
        *("label", "trainingjob", job, "-n", tenant.name, "--overwrite"),
        "kueue.x-k8s.io/queue-name=main",
    )
    tenant.wait(job, "Running")
    assert len(tenant.get("workloads.kueue.x-k8s.io")) == 1


def test_a_priority_class_of_kubernetes_gives_the_workload_its_priority(tenant: Tenant) -> None:
    tenant.nodes(1)
    tenant.queue(1)
    job = tenant.submit(replicas=1, pod_spec={"priorityClassName": "system-node-critical"})
    tenant.wait(job, "Running")
    assert tenant.get("workloads.kueue.x-k8s.io")[0]["spec"]["priority"] > 1_000_000


def test_an_admission_check_of_ours_is_kept_active(tenant: Tenant) -> None:
    tenant.apply(kueue("AdmissionCheck", tenant.name, {"controllerName": "goodput.dev/power"}))

    def active() -> bool:
        found = json.loads(
            tenant.sandbox.kubectl("get", "admissioncheck", tenant.name, "-o", "json")
        )
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "Active" and c["status"] == "True" for c in conditions)

    tenant.eventually(active, "active")
