"""Objects as the API server has them, small."""

from typing import Any

from goodput_operator import constants as c

NAMESPACE = "team-a"
UID = "job-uid-1"


def metadata(name: str, version: int, uid: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
        **more,
    }


def owner(job: str = "digits", uid: str = UID) -> dict[str, Any]:
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.KIND,
        "name": job,
        "uid": uid,
        "controller": True,
    }


def labels(job: str = "digits", uid: str = UID, rank: int = 0) -> dict[str, str]:
    return {
        c.LABEL_JOB: job,
        c.LABEL_JOB_UID: uid,
        c.LABEL_ATTEMPT: "1",
        c.LABEL_ROLE: "worker",
        c.LABEL_RANK: str(rank),
    }


def job(
    version: int = 10,
    name: str = "digits",
    uid: str = UID,
    replicas: int = 2,
    status: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    role = {
        "name": "worker",
        "replicas": replicas,
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.KIND,
        "metadata": metadata(name, version, uid, labels={c.LABEL_QUEUE: "training"}, **more),
        "spec": {"roles": [role]},
        "status": status or {},
    }


def pod(
    version: int = 20,
    name: str = "digits-a1-worker-0",
    uid: str = "pod-uid-1",
    phase: str = "Running",
    node: str | None = "node-1",
    **more: Any,
) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, version, uid, labels=labels(), ownerReferences=[owner()]) | more,
        "spec": spec,
        "status": {"phase": phase},
    }


def foreign_pod(name: str, cpu: str, node: str | None, phase: str = "Running") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"name": name, "namespace": "other", "uid": name, "resourceVersion": "1"},
        "spec": spec,
        "status": {"phase": phase},
    }


def node(
    version: int = 5,
    name: str = "node-1",
    ready: bool = True,
    heartbeat: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> dict[str, Any]:
    found = metadata(name, version, f"{name}-uid", labels={})
    del found["namespace"]
    condition = {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "lastHeartbeatTime": heartbeat,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "metadata": found,
        "spec": spec,
        "status": {"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [condition]},
    }


def workload(
    version: int = 30, name: str = "tj-digits-x", uid: str = "wl-1", **status: Any
) -> dict[str, Any]:
    return {
        "apiVersion": c.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": metadata(name, version, uid, ownerReferences=[owner()], labels=labels()),
        "spec": {"queueName": "training", "active": True, "podSets": []},
        "status": status,
    }


def flavor(version: int = 3, name: str = "gpus", **node_labels: str) -> dict[str, Any]:
    found = metadata(name, version, f"{name}-uid")
    del found["namespace"]
    return {"metadata": found, "spec": {"nodeLabels": node_labels}}


def check(version: int = 4, controller: str = c.CHECK_CONTROLLER, **status: Any) -> dict[str, Any]:
    found = metadata("power", version, "check-uid")
    del found["namespace"]
    return {"metadata": found, "spec": {"controllerName": controller}, "status": status}


def claim(version: int, namespace: str = NAMESPACE, uid: str = "c1") -> dict[str, Any]:
    return {
        "metadata": {**metadata("data", version, uid), "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"]},
        "status": {"phase": "Pending"},
    }


def volume(version: int, claim: str | None = "data") -> dict[str, Any]:
    made = {
        key: value for key, value in metadata("pv-1", version, "v1").items() if key != "namespace"
    }
    spec = {"claimRef": {"namespace": NAMESPACE, "name": claim}} if claim else {}
    return {"metadata": made, "spec": spec}
