"""The life of a TrainingJob on a real API server and the real Kueue, on simulated nodes."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from goodput_sandbox.operator_process import stop_operator
from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Tenant, kueue

COMPLETE = {"sandbox.goodput.dev/complete-after": "1s"}
CRASH = {"sandbox.goodput.dev/fail-exit-code": "3", "sandbox.goodput.dev/fail-after": "1s"}
NO_RESTARTS = {"crash": 0, "infrastructure": 0, "preemption": 0}


def nodes_of(tenant: Tenant, job: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in tenant.pods(job)}


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
    assert nodes_of(tenant, job) == set(mine)


def test_suspend_and_resume_with_no_rejected_write(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    for round_ in range(2, 5):
        tenant.patch(job, {"suspend": True})
        tenant.wait(job, "Suspended")
        assert tenant.pods(job) == []
        tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
        tenant.patch(job, {"suspend": False})
        tenant.wait(job, "Running", attempt=round_)
    assert tenant.status(job)["restarts"] == NO_RESTARTS
    assert len(tenant.get("workloads.kueue.x-k8s.io")) == 1


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


def test_a_gang_that_cannot_bind_is_withdrawn_and_planned_without_that_node(
    tenant: Tenant,
) -> None:
    mine = tenant.nodes(3)
    tenant.queue(2)
    # The planner does not know about this pod's dislike of company; kube-scheduler does.
    dislike = {
        "labelSelector": {"matchExpressions": [{"key": "goodput.dev/job", "operator": "Exists"}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [dislike]}}
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hermit", "namespace": tenant.name},
            "spec": {
                "nodeName": mine[0],
                "affinity": affinity,
                "containers": [{"name": "c", "image": "other"}],
            },
        }
    )
    tenant.eventually(
        lambda: tenant.get("pods", "hermit")[0]["status"]["phase"] == "Running", "hermit"
    )
    job = tenant.submit()
    tenant.eventually(lambda: "Unschedulable" in tenant.events(job), "withdrawn", 30)
    status = tenant.wait(job, "Running", timeout=30)
    assert nodes_of(tenant, job) == set(mine[1:])
    assert status["restarts"] == NO_RESTARTS
    assert status["attempts"][0]["outcome"] == "Unschedulable"


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


@pytest.mark.parametrize("how", ["kill", "make_not_ready", "delete", "out_of_service"])
def test_a_lost_node_restarts_the_gang_within_its_admission(tenant: Tenant, how: str) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    workload = tenant.get("workloads.kueue.x-k8s.io")[0]["metadata"]["uid"]
    lost = sorted(nodes_of(tenant, job))[0]
    getattr(tenant.sandbox.simulated, how)(lost)
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert lost not in status["placement"]["nodes"]
    assert tenant.get("workloads.kueue.x-k8s.io")[0]["metadata"]["uid"] == workload
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota kept")
    assert "NodeLost" in tenant.events(job)


def test_without_room_the_quota_goes_back_and_the_job_queues_again(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota in use")
    tenant.sandbox.simulated.kill(sorted(nodes_of(tenant, job))[0])
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back", timeout=60)
    assert tenant.pods(job) == []
    assert "QuotaReleased" in tenant.events(job)
    tenant.nodes(1)
    status = tenant.wait(job, "Running", timeout=60, attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}


def test_a_gang_waits_whole_while_somebody_else_has_the_room(tenant: Tenant) -> None:
    mine = tenant.nodes(2)
    tenant.queue(2)
    container = {"name": "c", "image": "other", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": tenant.name},
            "spec": {"nodeName": mine[0], "containers": [container]},
        }
    )
    tenant.eventually(
        lambda: tenant.get("pods", "other")[0]["status"]["phase"] == "Running", "foreign pod"
    )
    job = tenant.submit()
    tenant.eventually(
        lambda: tenant.status(job).get("reason") == "WaitingForNodes", "waiting for nodes"
    )
    assert tenant.pods(job) == []
    tenant.sandbox.kubectl("delete", "pod", "other", "-n", tenant.name)
    tenant.wait(job, "Running")


def test_two_gangs_with_room_for_one_run_one_after_the_other(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(4)
    first = tenant.submit("first", annotations={"sandbox.goodput.dev/complete-after": "5s"})
    second = tenant.submit("second", annotations=COMPLETE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert len(tenant.pods(first)) in (0, 2)
        assert len(tenant.pods(second)) in (0, 2)
        if tenant.status(second).get("phase") == "Complete":
            break
    tenant.wait(first, "Complete")
    tenant.wait(second, "Complete")


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


def test_a_pod_that_somebody_deletes_restarts_the_gang(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    name = tenant.pods(job)[0]["metadata"]["name"]
    tenant.sandbox.kubectl("delete", "pod", name, "-n", tenant.name, "--wait=false")
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert len(tenant.pods(job, 2)) == 2


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


def test_a_finished_job_starts_nothing_when_its_children_are_deleted(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(annotations=COMPLETE)
    tenant.wait(job, "Complete")
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    for kind in ("workloads.kueue.x-k8s.io", "pods"):
        tenant.sandbox.kubectl("delete", kind, "--all", "-n", tenant.name)
    time.sleep(2)
    assert tenant.get("pods") == []
    assert tenant.get("workloads.kueue.x-k8s.io") == []
    assert tenant.status(job)["phase"] == "Complete"


def test_a_killed_operator_goes_on_where_it_was(tenant: Tenant, operator) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    stop_operator(tenant.sandbox, kill=True)
    lost = sorted(nodes_of(tenant, job))[0]
    tenant.sandbox.simulated.kill(lost)
    operator()
    status = tenant.wait(job, "Running", attempt=2)
    assert lost not in status["placement"]["nodes"]
    assert len(tenant.pods(job, 2)) == 2
    assert len(tenant.get("workloads.kueue.x-k8s.io")) == 1


def test_a_frozen_api_server_stops_nothing_and_is_caught_up_with(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.sandbox.freeze("kube-apiserver")
    try:
        time.sleep(20)
    finally:
        tenant.sandbox.thaw("kube-apiserver")
    assert tenant.status(job)["attempt"] == 1
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended", timeout=70)


def metrics(sandbox: Sandbox) -> dict[tuple[str, str, str], float]:
    port = sandbox.forward(sandbox.ports.operator_health)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (s.name, s.labels.get("namespace", ""), json.dumps(s.labels, sort_keys=True)): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_metrics_tell_of_a_job_and_vanish_with_it(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    seen = metrics(tenant.sandbox)
    mine = {name: value for (name, namespace, _), value in seen.items() if namespace == tenant.name}
    assert mine["goodput_job_attempt"] == 1
    assert mine["goodput_job_ready_ranks"] == 2
    assert any(name == "goodput_operator_reconcile_seconds_count" for name, _, _ in seen)
    tenant.sandbox.kubectl("delete", "trainingjob", job, "-n", tenant.name)
    tenant.eventually(
        lambda: not any(ns == tenant.name for _, ns, _ in metrics(tenant.sandbox)),
        "series of the deleted job gone",
    )


def test_an_admission_check_of_ours_is_kept_active(tenant: Tenant) -> None:
    tenant.apply(kueue("AdmissionCheck", tenant.name, {"controllerName": "goodput.dev/power"}))

    def active() -> bool:
        found = json.loads(
            tenant.sandbox.kubectl("get", "admissioncheck", tenant.name, "-o", "json")
        )
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "Active" and c["status"] == "True" for c in conditions)

    tenant.eventually(active, "active")


def test_a_job_made_again_at_once_does_not_wait_for_a_pod_on_a_dead_node(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.sandbox.simulated.kill(sorted(nodes_of(tenant, job))[0])
    tenant.wait(job, "Running", attempt=2)
    tenant.sandbox.kubectl("delete", "trainingjob", job, "-n", tenant.name)
    tenant.submit()
    status = tenant.wait(job, "Running", timeout=60)
    assert status["attempt"] >= 2, "the name of the pod on the dead node is taken"
    assert status["restarts"] == NO_RESTARTS


def test_a_gang_of_which_some_pods_are_refused_is_withdrawn_whole(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "one", "namespace": tenant.name},
            "spec": {"hard": {"pods": "1"}},
        }
    )
    job = tenant.submit()
    tenant.eventually(lambda: "Unschedulable" in tenant.events(job), "withdrawn", 40)
    tenant.eventually(lambda: not tenant.pods(job), "no half gang", 20)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back", 90)
    tenant.sandbox.kubectl("delete", "resourcequota", "one", "-n", tenant.name)
    tenant.wait(job, "Running", timeout=120)
