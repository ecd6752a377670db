"""Nodes and pods that are lost: the gang restarts, once, and nobody waits for the dead."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.cluster import CRASH, NO_RESTARTS, Manifest, Tenant
from tests.integration.record import Record

WORKLOADS = "workloads"


def terminating(tenant: Tenant) -> set[str]:
    """Names of the pods that are being deleted."""
    pods = (pod["metadata"] for pod in tenant.get("pods"))
    return {each["name"] for each in pods if each.get("deletionTimestamp")}


def env(pod: Manifest) -> list[Manifest]:
    """The environment of a pod's container."""
    found: list[Manifest] = pod["spec"]["containers"][0]["env"]
    return found


def coordinator(pod: Manifest) -> str:
    """Where a pod is told that rank 0 listens."""
    return next(each["value"] for each in env(pod) if each["name"] == "GOODPUT_COORDINATOR")


@pytest.mark.parametrize("how", ["kill", "make_not_ready", "delete", "out_of_service"])
def test_case_07_a_lost_node_leaves_the_crash_budget_untouched(tenant: Tenant, how: str) -> None:
    """Of a job that may not crash even once. It restarts within its admission."""
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit(faultTolerance={"maxCrashRestarts": 0})
    tenant.wait(job, "Running")
    workload = tenant.get(WORKLOADS)[0]["metadata"]["uid"]
    lost = min(tenant.nodes_of(job))
    getattr(tenant.sandbox.simulated, how)(lost)
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert lost not in status["placement"]["nodes"]
    assert tenant.get(WORKLOADS)[0]["metadata"]["uid"] == workload
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota kept")
    assert "NodeLost" in tenant.events(job)


def test_case_07_a_rank_that_crashes_because_a_node_was_lost_is_no_crash(tenant: Tenant) -> None:
    """Its collective breaks at once; that the node is dead is known seconds later."""
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit(faultTolerance={"maxCrashRestarts": 0})
    tenant.wait(job, "Running")
    dead, other = (pod["spec"]["nodeName"] for pod in tenant.pods(job))
    crashed = next(
        pod["metadata"]["name"] for pod in tenant.pods(job) if pod["spec"]["nodeName"] == other
    )
    tenant.annotate({**CRASH, "sandbox.goodput.dev/fail-after": "0s"}, crashed)
    tenant.eventually(lambda: "RankCrashed" in tenant.events(job), "crash seen")
    tenant.sandbox.simulated.kill(dead)
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert dead not in status["placement"]["nodes"]


def test_case_01_pods_that_hang_on_a_dead_node_keep_nobody_waiting(tenant: Tenant) -> None:
    """Nor do they keep the quota: when the job is stopped, it goes back."""
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    hanging = tenant.pods(job)[0]
    name, dead = hanging["metadata"]["name"], hanging["spec"]["nodeName"]
    tenant.sandbox.simulated.kill(dead)
    status = tenant.wait(job, "Running", attempt=2)
    assert terminating(tenant) == {name}
    assert dead not in status["placement"]["nodes"]
    assert tenant.used_gpus() == 2
    lost = status["placement"]["nodes"][0]
    tenant.sandbox.simulated.kill(lost)
    tenant.eventually(lambda: tenant.status(job)["phase"] != "Running", "second loss seen")
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    assert len(terminating(tenant)) == 2, "both nodes are dead, and nobody ends their pods"
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")


def test_case_08_two_nodes_lost_at_once_are_one_restart(tenant: Tenant) -> None:
    tenant.nodes(8)
    tenant.queue(4)
    job = tenant.submit(replicas=4)
    tenant.wait(job, "Running")
    lost = sorted(tenant.nodes_of(job))[:2]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(tenant.sandbox.simulated.kill, lost))
    tenant.wait(job, "Running", attempt=2)
    time.sleep(3)  # longer than the operator waits for others that are silent too
    status = tenant.status(job)
    assert (status["phase"], status["attempt"]) == ("Running", 2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert not set(lost) & set(status["placement"]["nodes"])


def test_case_19_a_pod_that_somebody_deletes_restarts_the_gang(
    tenant: Tenant, record: Record
) -> None:
    """All of it, in a new attempt, whose number all its ranks share (case 17)."""
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.delete("pods", tenant.pods(job)[0]["metadata"]["name"])
    status = tenant.wait(job, "Running", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    pods = tenant.pods(job)
    assert {pod["metadata"]["name"] for pod in pods} == {f"{job}-a2-worker-{n}" for n in (0, 1)}
    told = {"GOODPUT_ATTEMPT": "2", "GOODPUT_COORDINATOR": coordinator(pods[0])}
    for pod in pods:
        environment = {each["name"]: each.get("value") for each in env(pod)}
        assert {name: environment[name] for name in told} == told
    made = record.made("pods", tenant.name, job)
    assert made == {f"{job}-a{attempt}-worker-{n}": 1 for attempt in (1, 2) for n in (0, 1)}


def test_a_job_made_again_at_once_does_not_wait_for_a_pod_on_a_dead_node(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.sandbox.simulated.kill(sorted(tenant.nodes_of(job))[0])
    tenant.wait(job, "Running", attempt=2)
    tenant.sandbox.kubectl("delete", "trainingjob", job, "-n", tenant.name)
    tenant.submit()
    status = tenant.wait(job, "Running", timeout=60)
    assert status["attempt"] >= 2, "the name of the pod on the dead node is taken"
    assert status["restarts"] == NO_RESTARTS
