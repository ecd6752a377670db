"""A job's children edited, deleted or forged by hand."""

from __future__ import annotations

import time

from tests.integration.cluster import NO_RESTARTS, TENANT_LABEL, Manifest, Tenant, kueue
from tests.integration.edits import hands

NO_LABELS = {
    f"goodput.dev/{name}": None for name in ("job", "job-uid", "attempt", "role", "rank")
} | {"app": "other"}
LOST = {**NO_RESTARTS, "infrastructure": 1}


def started(tenant: Tenant, nodes: int = 4) -> str:
    """A job of two ranks that runs, on some of so many nodes."""
    tenant.nodes(nodes)
    tenant.queue(4)
    job = tenant.submit()
    tenant.wait(job, "Running", ready="2/2")
    return job


def remove(tenant: Tenant, kind: str, name: str) -> None:
    tenant.sandbox.kubectl("delete", kind, name, "-n", tenant.name, "--wait=false")


def test_a_deleted_workload_is_made_again_and_the_gang_starts_anew(tenant: Tenant) -> None:
    job = started(tenant)
    waiting = tenant.submit("waiting", replicas=4)
    tenant.wait(waiting, "Queued", reason="WaitingForQuota")
    tenant.eventually(lambda: tenant.status(waiting).get("workload"), "its Workload is known")
    first = tenant.status(waiting)["workload"]
    remove(tenant, hands.WORKLOADS, first)
    tenant.eventually(
        lambda: len(hands.owned(tenant, hands.WORKLOADS, hands.uid(tenant, waiting))) == 1, "again"
    )
    tenant.patch(waiting, {"suspend": True})
    remove(tenant, hands.WORKLOADS, tenant.status(job)["workload"])
    status = tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
    assert status["restarts"] == NO_RESTARTS
    assert status["attempts"][0]["outcome"] == "Evicted"
    assert "was deleted" in status["attempts"][0]["message"]
    hands.consistent(tenant, job)
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota counted once")


def test_a_pod_without_its_labels_or_its_owner_is_lost_and_takes_room(tenant: Tenant) -> None:
    job = started(tenant)
    first = hands.names(tenant, job)[0]
    node = tenant.get("pods", first)[0]["spec"]["nodeName"]
    hands.patch(tenant, "pods", first, {"metadata": {"labels": NO_LABELS}})
    status = tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
    assert status["restarts"] == LOST
    assert node not in status["placement"]["nodes"], "that pod is still there"
    second = hands.names(tenant, job)[0]
    other = tenant.get("pods", second)[0]["spec"]["nodeName"]
    hands.patch(tenant, "pods", second, {"metadata": {"ownerReferences": None}})
    remove(tenant, "pods", first)
    status = tenant.wait(job, "Running", 60, attempt=3)
    assert other not in status["placement"]["nodes"], "that pod is still there"
    assert all(each["outcome"] == "InfrastructureLost" for each in status["attempts"])
    found = tenant.get("pods", second)
    assert not found[0]["metadata"].get("deletionTimestamp"), "it is nobody's to delete"


def test_a_deleted_service_is_there_again_with_the_next_attempt(tenant: Tenant) -> None:
    job = started(tenant)
    remove(tenant, "service", f"{job}-ranks")
    time.sleep(1)
    assert tenant.status(job)["phase"] == "Running"
    remove(tenant, "pod", hands.names(tenant, job)[0])
    tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
    assert len(hands.owned(tenant, "services", hands.uid(tenant, job))) == 1


def test_a_forged_pod_is_no_rank_and_takes_room(tenant: Tenant) -> None:
    job = started(tenant, nodes=3)
    real = tenant.get("pods", hands.names(tenant, job)[0])[0]
    free = [
        node["metadata"]["name"]
        for node in tenant.get("nodes")
        if node["metadata"]["labels"].get(TENANT_LABEL) == tenant.name
        and node["metadata"]["name"] not in tenant.nodes_of(job)
    ]
    tenant.apply(forged(tenant, "forged", real["metadata"]["labels"], free[0]))
    # And one that has the name that a rank of the next attempt needs.
    tenant.apply(forged(tenant, f"{job}-a2-worker-0", {"app": "other"}, None))
    tenant.eventually(lambda: len(tenant.get("pods")) == 4, "forged")
    time.sleep(1)
    status = tenant.status(job)
    assert (status["phase"], status["ready"], status["attempt"]) == ("Running", "2/2", 1)
    remove(tenant, "pod", real["metadata"]["name"])
    status = tenant.wait(job, "Running", 90, ready="2/2", attempt=3)
    assert free[0] not in status["placement"]["nodes"]
    taken = [each["message"] for each in status["attempts"] if each["attempt"] == 2]
    assert "the name is taken by an object of another owner" in taken[0]
    assert status["restarts"] == LOST
    assert [p["metadata"]["name"] for p in hands.owned(tenant, "pods", None)] == [
        "forged",
        f"{job}-a2-worker-0",
    ]


def forged(tenant: Tenant, name: str, labels: dict[str, str], node: str | None) -> Manifest:
    """A pod that no job owns; one with a node takes an accelerator there."""
    container: Manifest = {"name": "c", "image": "x"}
    spec: Manifest = {"containers": [container]}
    if node:
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": tenant.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_somebody_elses_workload_under_our_name_is_not_taken_over(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    status = tenant.wait(job, "Running", ready="2/2")
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    owned = tenant.get("workloads", status["workload"])[0]
    remove(tenant, hands.WORKLOADS, status["workload"])
    tenant.eventually(lambda: not tenant.get("workloads"), "Workload gone")
    theirs = kueue("Workload", status["workload"], {"podSets": owned["spec"]["podSets"]})
    theirs["metadata"]["namespace"] = tenant.name
    tenant.apply(theirs)
    tenant.patch(job, {"suspend": False})
    tenant.eventually(lambda: tenant.status(job).get("reason") == "APIError", "told", 15)
    conditions = tenant.status(job)["conditions"]
    said = next(each["message"] for each in conditions if each["type"] == "Running")
    assert f"create workloads {status['workload']}: the name is taken" in said
    assert not tenant.get("workloads")[0]["metadata"].get("ownerReferences")
    assert tenant.pods(job) == []
    remove(tenant, hands.WORKLOADS, status["workload"])
    tenant.wait(job, "Running", 90, ready="2/2")
