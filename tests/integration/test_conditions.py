"""What only the operator can see to be wrong becomes a condition within seconds, with a remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.cluster import Manifest, Tenant, kueue

CHECKPOINT = {"uri": "/ckpt", "volume": {"claimName": "ckpt", "mountPath": "/ckpt"}}
DATA = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
ZONE = "topology.kubernetes.io/zone"
SECONDS = 10.0
"""Within which a condition has to say what is wrong."""


def told(tenant: Tenant, job: str, reason: str, seconds: float = SECONDS) -> str:
    """The message with which the job says so, in the status and in its condition."""
    tenant.eventually(lambda: tenant.status(job).get("reason") == reason, reason, seconds)
    conditions = {each["type"]: each for each in tenant.status(job)["conditions"]}
    assert conditions["Running"]["reason"] == reason
    message: str = conditions["Running"]["message"]
    return message


def claim(tenant: Tenant, name: str, mode: str, zone: str | None = None) -> list[Manifest]:
    """A claim, and a volume that it binds to; with a zone, one that only that zone can use."""
    volume = f"{tenant.name}-{name}"
    metadata = {"name": name, "namespace": tenant.name}
    storage = {"accessModes": [mode], "storageClassName": ""}
    spec: Manifest = {
        **storage,
        "capacity": {"storage": "1Gi"},
        "claimRef": metadata,
        "hostPath": {"path": f"/nowhere/{volume}"},
    }
    if zone is not None:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        term = {"matchExpressions": [expression]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    bound = {**storage, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": spec,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": bound,
        },
    ]


@pytest.fixture
def ready(tenant: Tenant) -> Tenant:
    """A tenant with two nodes and quota for both."""
    tenant.nodes(2)
    tenant.queue(2)
    return tenant


def test_unknown_queue(tenant: Tenant) -> None:
    tenant.queue(2)
    job = tenant.submit(queue="nowhere")
    message = told(tenant, job, "Inadmissible")
    assert "LocalQueue nowhere doesn't exist; create it, or correct the label" in message


@pytest.mark.parametrize("kind", ["clusterqueue", "localqueue"])
def test_stopped_queue(ready: Tenant, kind: str) -> None:
    if kind == "clusterqueue":
        ready.stop_queue("Hold")
    else:
        patch = json.dumps({"spec": {"stopPolicy": "Hold"}})
        ready.sandbox.kubectl(
            *("patch", "localqueue", "main", "-n", ready.name, "--type=merge", "-p", patch)
        )
    job = ready.submit()
    message = told(ready, job, "Inadmissible")
    name = ready.name if kind == "clusterqueue" else "main"
    assert name in message
    assert "it is stopped (spec.stopPolicy" in message


def test_unknown_priority_class_until_it_appears(ready: Tenant) -> None:
    name = f"{ready.name}-urgent"
    job = ready.submit(priority=name)
    message = told(ready, job, "UnknownPriorityClass")
    assert name in message
    assert "create it, or correct the label kueue.x-k8s.io/priority-class" in message
    assert ready.pods(job) == []
    made = kueue("WorkloadPriorityClass", name, {})
    del made["spec"]
    ready.apply({**made, "value": 7})
    ready.wait(job, "Running", timeout=45)
    assert ready.get("workloads.kueue.x-k8s.io")[0]["spec"]["priority"] == 7


@pytest.mark.parametrize("where", ["checkpoint", "template"])
def test_missing_volume_claim_until_it_appears(ready: Tenant, where: str) -> None:
    name = "ckpt" if where == "checkpoint" else "data"
    spec: dict[str, Any] = (
        {"checkpoint": CHECKPOINT} if where == "checkpoint" else {"pod_spec": DATA}
    )
    job = ready.submit(**spec)
    message = told(ready, job, "VolumeClaimMissing")
    assert f"there is no PersistentVolumeClaim {name!r}" in message
    assert "create it, or correct the name" in message
    assert ready.get("pods") == []
    assert ready.used_gpus() == 0
    ready.apply(*claim(ready, name, "ReadWriteMany"))
    ready.wait(job, "Running")


def test_claim_deleted_while_the_job_runs_does_not_stop_it(ready: Tenant) -> None:
    ready.apply(*claim(ready, "data", "ReadWriteMany"))
    job = ready.submit(pod_spec=DATA)
    ready.wait(job, "Running")
    ready.sandbox.kubectl("delete", "pvc", "data", "-n", ready.name, "--wait=false")
    ready.eventually(
        lambda: ready.get("pvc", "data")[0]["metadata"].get("deletionTimestamp"), "claim deleted"
    )
    ready.patch(job, {"activeDeadlineSeconds": 3600})
    ready.eventually(lambda: ready.status(job).get("observedGeneration") == 2, "looked at again")
    status = ready.status(job)
    assert (status["phase"], status["attempt"]) == ("Running", 1)


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
def test_claim_of_one_node_in_a_gang_over_two(ready: Tenant, mode: str) -> None:
    ready.apply(*claim(ready, "ckpt", mode))
    job = ready.submit(checkpoint=CHECKPOINT)
    message = told(ready, job, "VolumeNotShared")
    assert message.startswith("spec.checkpoint.volume.claimName: PersistentVolumeClaim 'ckpt'")
    assert "use one that is ReadWriteMany" in message
    assert ready.get("pods") == []
    assert ready.used_gpus() == 0


def test_claim_of_one_node_with_all_ranks_on_it(tenant: Tenant) -> None:
    tenant.nodes(1, gpus=2)
    tenant.queue(2)
    tenant.apply(*claim(tenant, "ckpt", "ReadWriteOnce"))
    job = tenant.submit(checkpoint=CHECKPOINT)
    tenant.wait(job, "Running")


def test_volume_of_another_zone_is_planned_for(ready: Tenant) -> None:
    first, second = sorted(
        each["metadata"]["name"]
        for each in ready.get("nodes")
        if each["metadata"]["name"].startswith(f"{ready.name}-")
    )
    ready.sandbox.kubectl("label", "node", first, f"{ZONE}={ready.name}-a", "--overwrite")
    ready.sandbox.kubectl("label", "node", second, f"{ZONE}={ready.name}-b", "--overwrite")
    ready.apply(*claim(ready, "data", "ReadWriteMany", zone=f"{ready.name}-b"))
    job = ready.submit(replicas=1, pod_spec=DATA)
    status = ready.wait(job, "Running")
    assert (status["placement"]["nodes"], status["attempt"]) == ([second], 1)
    wide = ready.submit("wide", replicas=2, pod_spec=DATA)
    ready.patch(job, {"suspend": True})
    message = told(ready, wide, "WaitingForNodes", 20)
    assert "volume node affinity conflict" in message


def test_resource_claims_by_name(ready: Tenant) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "shared-gpu"}]
    job = ready.submit(pod_spec={"resourceClaims": claims})
    message = told(ready, job, "UnsupportedResourceClaims")
    assert "spec.roles[worker].template.spec.resourceClaims[gpu].resourceClaimName" in message
    assert "set resourceClaimTemplateName instead" in message
    assert ready.get("workloads.kueue.x-k8s.io") == []


def test_case_15_forbidden_create(ready: Tenant) -> None:
    quota = {"metadata": {"name": "none", "namespace": ready.name}, "spec": {"hard": {"pods": "0"}}}
    ready.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    job = ready.submit()
    message = told(ready, job, "APIError")
    assert "exceeded quota: none" in message
    assert "raise the quota" in message
    ready.sandbox.kubectl("delete", "resourcequota", "none", "-n", ready.name)
    ready.wait(job, "Running", timeout=60)


def test_case_24_a_template_of_300_kilobytes_runs(ready: Tenant) -> None:
    """By server-side apply, since kubectl's annotation could not hold it."""
    values = [{"name": f"V{i}", "value": "x" * 1000} for i in range(300)]
    container = {
        "name": "main",
        "image": "trainer",
        "env": values,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    job = {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": "large",
            "namespace": ready.name,
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {
            "roles": [
                {
                    "name": "worker",
                    "replicas": 2,
                    "template": {"spec": {"containers": [container]}},
                }
            ]
        },
    }
    body = json.dumps(job)
    assert len(body) > 300_000
    ready.sandbox.kubectl("apply", "--server-side", "-f", "-", input=body)
    ready.wait("large", "Running")
    pod = ready.pods("large")[0]
    assert [each for each in pod["spec"]["containers"][0]["env"] if each in values] == values


def test_fields_that_this_version_does_not_know_reach_the_pod_or_break_nothing(
    ready: Tenant,
) -> None:
    known_to_the_server_only = {"os": {"name": "linux"}, "setHostnameAsFQDN": False}
    job = ready.submit(pod_spec={**known_to_the_server_only, "fieldOfTheFuture": {"deep": [1]}})
    ready.wait(job, "Running")
    spec = ready.pods(job)[0]["spec"]
    assert {name: spec.get(name) for name in known_to_the_server_only} == known_to_the_server_only
    assert "fieldOfTheFuture" not in spec
