"""What people do to a job and its children by hand, and what must be true of them afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from goodput_operator.api.status import Placement
from goodput_operator.domain.placement import codec
from tests.integration.api import path_of
from tests.integration.cluster import Manifest, Tenant

WORKLOADS = "workloads.kueue.x-k8s.io"
HOLD = "edits.test/hold"
"""A finalizer of somebody's: what carries it stays Terminating."""
CHILDREN = ("pods", "workloads", "services")


def patch(tenant: Tenant, kind: str, name: str, body: Manifest, subresource: str = "") -> None:
    """Merge patch."""
    path = "/".join(filter(None, [path_of(kind, tenant.name, name), subresource]))
    assert tenant.api.request("PATCH", path, body), f"no {kind} {name}"


def label(tenant: Tenant, job: str, **labels: str | None) -> None:
    """Set labels of Kueue on a job, or remove them."""
    full = {f"kueue.x-k8s.io/{name.replace('_', '-')}": value for name, value in labels.items()}
    patch(tenant, "trainingjobs", job, {"metadata": {"labels": full}})


def delete(tenant: Tenant, job: str, propagation: str = "Background") -> None:
    """Delete a job; nobody waits for it."""
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    tenant.api.request("DELETE", str(path_of("trainingjobs", tenant.name, job)), options)


def hold(tenant: Tenant, *pods: str) -> None:
    """From now on these pods stay Terminating once they are deleted."""
    for name in pods:
        patch(tenant, "pods", name, {"metadata": {"finalizers": [HOLD]}})


def let_go(tenant: Tenant) -> None:
    """What was held may go."""
    for pod in tenant.get("pods"):
        if HOLD in pod["metadata"].get("finalizers", ()):
            path = str(path_of("pods", tenant.name, pod["metadata"]["name"]))
            tenant.api.request("PATCH", path, {"metadata": {"finalizers": None}})


def names(tenant: Tenant, job: str) -> list[str]:
    """Names of a job's pods that are not being deleted."""
    return [pod["metadata"]["name"] for pod in tenant.pods(job)]


def uid(tenant: Tenant, job: str) -> str:
    """UID of a job."""
    return str(tenant.get("trainingjobs", job)[0]["metadata"]["uid"])


def owned(tenant: Tenant, kind: str, owner: str | None) -> list[Manifest]:
    """Objects of a kind that a job of that UID owns; None: that nobody owns."""
    return [
        each
        for each in tenant.get(kind)
        if owner in [one["uid"] for one in each["metadata"].get("ownerReferences", [])]
        or (owner is None and not each["metadata"].get("ownerReferences"))
    ]


def children(tenant: Tenant) -> set[str]:
    """UIDs of all pods, Workloads and Services of the tenant."""
    return {each["metadata"]["uid"] for kind in CHILDREN for each in tenant.get(kind)}


def consistent(tenant: Tenant, job: str) -> None:
    """What is recorded is what there is: each rank's pod, on its node, made of the job's spec."""
    found = tenant.get("trainingjobs", job)[0]
    status, spec = found["status"], found["spec"]
    placement = Placement.model_validate(status["placement"])
    placed = {
        (role, rank): node
        for role, nodes in codec.decode(placement).items()
        for rank, node in enumerate(nodes)
    }
    wanted = {(r["name"], rank) for r in spec["roles"] for rank in range(r["replicas"])}
    assert set(placed) == wanted
    pods = owned(tenant, "pods", found["metadata"]["uid"])
    live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    seen = {_rank(pod): pod["spec"]["nodeName"] for pod in live}
    assert seen == placed
    assert {int(_label(pod, "attempt")) for pod in live} == {placement.attempt}
    images = {r["name"]: r["template"]["spec"]["containers"][0]["image"] for r in spec["roles"]}
    for pod in live:
        assert pod["spec"]["containers"][0]["image"] == images[_label(pod, "role")]
    assert len(owned(tenant, WORKLOADS, found["metadata"]["uid"])) == 1
    attempts = [each["attempt"] for each in status.get("attempts", [])] + [status["attempt"]]
    assert attempts == sorted(set(attempts)), "an attempt number was used twice"


def _label(pod: Manifest, name: str) -> str:
    return str(pod["metadata"]["labels"][f"goodput.dev/{name}"])


def _rank(pod: Manifest) -> tuple[str, int]:
    return _label(pod, "role"), int(_label(pod, "rank"))


@contextmanager
def meanwhile(*actions: Callable[[int], Any]) -> Iterator[list[int]]:
    """Each action is done over and over by a thread of its own; how often, once it is over."""
    over, counts, errors = threading.Event(), [0] * len(actions), list[Exception]()

    def loop(index: int, action: Callable[[int], Any]) -> None:
        try:
            while not over.is_set():
                action(counts[index])
                counts[index] += 1
        except (AssertionError, OSError) as error:
            errors.append(error)

    threads = [
        threading.Thread(target=loop, args=(index, action)) for index, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not errors, errors


def refuse_pods(tenant: Tenant) -> None:
    """A policy of the cluster's: no pod of a template that says so, or only rank 0."""
    said = "has(object.metadata.annotations) && 'edits.test/refuse' in object.metadata.annotations"
    which = "object.metadata.annotations['edits.test/refuse']"
    rank = "object.metadata.labels['goodput.dev/rank']"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "validations": [
            {
                "expression": f"!({said}) || ({which} == 'half' && {rank} == '0')",
                "message": "this policy wants no such pod",
            }
        ],
    }
    binding = {
        "policyName": tenant.name,
        "validationActions": ["Deny"],
        "matchResources": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant.name}}
        },
    }
    group = "admissionregistration.k8s.io/v1"
    metadata = {"name": tenant.name}
    tenant.apply(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": policy,
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": binding,
        },
    )
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "probe",
            "namespace": tenant.name,
            "annotations": {"edits.test/refuse": "all"},
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }

    def holds() -> bool:
        asked = ("create", "--dry-run=server", "-f", "-")
        return bool(tenant.kubectl.run(*asked, stdin=json.dumps(probe)).returncode)

    tenant.eventually(holds, "the policy is in force")


def allow_pods(tenant: Tenant) -> None:
    """The policy is gone."""
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        tenant.sandbox.kubectl("delete", kind, tenant.name, "--ignore-not-found")
