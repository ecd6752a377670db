"""Queues are stopped, shrunk, deleted and made again, while jobs run in them and wait for them."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.cluster import GPU, NO_RESTARTS, TENANT_LABEL, Tenant, kueue
from tests.integration.kueue.conftest import (
    SOON,
    condition,
    patch,
    told,
    uids,
    workload,
)

QUIET_SECONDS = 3
"""Long enough for a job that Kueue wants to stop to be stopped."""


def two_jobs(tenant: Tenant) -> tuple[str, str]:
    """One that runs, and one that waits for its room."""
    tenant.nodes(2)
    tenant.queue(2)
    runs = tenant.submit("runs")
    tenant.wait(runs, "Running")
    waits = tenant.submit("waits")
    tenant.eventually(
        lambda: tenant.status(waits).get("reason") == "WaitingForQuota", "one that waits"
    )
    return runs, waits


def stop(tenant: Tenant, kind: str, policy: str) -> None:
    """Set the stop policy of a queue."""
    name = tenant.name if kind == "clusterqueue" else "main"
    patch(tenant, kind, name, {"spec": {"stopPolicy": policy}})


@pytest.mark.parametrize("kind", ["clusterqueue", "localqueue"])
def test_held_and_drained_queues(tenant: Tenant, kind: str) -> None:
    runs, waits = two_jobs(tenant)
    pods = uids(tenant, runs)
    stop(tenant, kind, "Hold")
    time.sleep(QUIET_SECONDS)
    # Kueue may look at what waits before it knows of the stop, and then leaves its message.
    if kind == "localqueue":
        assert "it is stopped (spec.stopPolicy" in told(tenant, waits, "Inadmissible")
    assert tenant.status(waits)["phase"] == "Queued"
    assert uids(tenant, runs) == pods, "what runs goes on"
    stop(tenant, kind, "HoldAndDrain")
    tenant.eventually(lambda: not tenant.get("pods") and tenant.used_gpus() == 0, "drained", SOON)
    assert "stop" in told(tenant, runs, "Inadmissible", "Evicted")
    stop(tenant, kind, "None")
    tenant.eventually(lambda: tenant.used_gpus() == 2, "one of both is admitted", 30)
    tenant.eventually(lambda: len(tenant.get("pods")) == 2, "one gang")
    assert tenant.status(runs)["restarts"] == NO_RESTARTS
    for job in (runs, waits):
        workload(tenant, job)


def test_quota_lowered_below_what_runs(tenant: Tenant) -> None:
    runs, waits = two_jobs(tenant)
    pods = uids(tenant, runs)
    queue = json.loads(tenant.sandbox.kubectl("get", "clusterqueue", tenant.name, "-o", "json"))
    resources = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    gpus = next(each for each in resources if each["name"] == GPU)
    gpus["nominalQuota"] = "1"
    tenant.apply(kueue("ClusterQueue", tenant.name, queue["spec"]))
    tenant.eventually(
        lambda: "> maximum capacity (1)" in condition(tenant, waits)["message"], "told"
    )
    assert condition(tenant, waits)["reason"] in ("WaitingForQuota", "Inadmissible")
    time.sleep(QUIET_SECONDS)
    assert uids(tenant, runs) == pods, "Kueue evicts nobody for it"
    tenant.sandbox.simulated.kill(tenant.status(runs)["placement"]["nodes"][0])
    tenant.nodes(1)
    tenant.wait(runs, "Running", 30, attempt=2)
    assert tenant.used_gpus() == 2, "the admission stays, also for the next attempt"
    gpus["nominalQuota"] = "2"
    tenant.apply(kueue("ClusterQueue", tenant.name, queue["spec"]))
    tenant.patch(runs, {"suspend": True})
    tenant.wait(waits, "Running", 30)


def test_a_cluster_queue_is_deleted_and_made_again(tenant: Tenant) -> None:
    runs, waits = two_jobs(tenant)
    pods = uids(tenant, runs)
    queue = json.loads(tenant.sandbox.kubectl("get", "clusterqueue", tenant.name, "-o", "json"))
    tenant.sandbox.kubectl("delete", "clusterqueue", tenant.name, "--wait=false")
    message = told(tenant, waits, "Inadmissible", seconds=20)
    assert tenant.name in message
    time.sleep(QUIET_SECONDS)
    assert uids(tenant, runs) == pods, "it is kept until nothing runs in it"
    tenant.delete("trainingjobs", runs)

    def queues() -> str:
        return tenant.sandbox.kubectl("get", "clusterqueue", tenant.name, "--ignore-not-found")

    tenant.eventually(lambda: not queues(), "the queue gone")
    assert tenant.name in told(tenant, waits, "Inadmissible")
    tenant.apply(kueue("ClusterQueue", tenant.name, queue["spec"]))
    tenant.wait(waits, "Running", 30)


def test_a_local_queue_is_deleted_while_a_job_runs_in_it(tenant: Tenant) -> None:
    runs, waits = two_jobs(tenant)
    pods = uids(tenant, runs)
    tenant.sandbox.kubectl("delete", "localqueue", "main", "-n", tenant.name, "--wait=false")
    assert "create it, or correct the label" in told(tenant, waits, "Inadmissible", seconds=20)
    time.sleep(QUIET_SECONDS)
    assert uids(tenant, runs) == pods
    assert tenant.status(runs)["restarts"] == NO_RESTARTS
    tenant.delete("trainingjobs", runs)
    tenant.eventually(lambda: not tenant.get("pods"), "gone")
    tenant.apply(kueue("LocalQueue", "main", {"clusterQueue": tenant.name}, tenant.name))
    tenant.wait(waits, "Running", 30)


def test_the_node_labels_of_a_flavour_change(tenant: Tenant) -> None:
    runs, _ = two_jobs(tenant)
    pods = uids(tenant, runs)
    labels = {TENANT_LABEL: tenant.name, "goodput.dev/test-generation": tenant.name}
    tenant.apply(kueue("ResourceFlavor", tenant.name, {"nodeLabels": labels}))
    time.sleep(QUIET_SECONDS)
    assert uids(tenant, runs) == pods, "what runs is left alone"
    tenant.sandbox.simulated.kill(tenant.status(runs)["placement"]["nodes"][0])
    assert "node" in told(tenant, runs, "WaitingForNodes", seconds=20)
    for node in tenant.nodes(2):
        tenant.sandbox.kubectl("label", "node", node, f"goodput.dev/test-generation={tenant.name}")
    status = tenant.wait(runs, "Running", 60)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
