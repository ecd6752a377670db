"""One tenant of the sandbox: a namespace, a queue, nodes of its own, and its jobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.testing import wait_for
from tests.integration.api import api_of, path_of

GPU = "nvidia.com/gpu"
TENANT_LABEL = "goodput.dev/test-tenant"
NO_RESTARTS = {
    "crash": 0,
    "infrastructure": 0,
    "preemption": 0,
    "hang": 0,
    "powerShed": 0,
    "migration": 0,
}
COMPLETE = {"sandbox.goodput.dev/complete-after": "1s"}
CRASH = {"sandbox.goodput.dev/fail-exit-code": "3", "sandbox.goodput.dev/fail-after": "1s"}
"""Annotations that script a simulated pod."""
Manifest = dict[str, Any]


def sandbox_name() -> str:
    """Name of this process's sandbox: those of a parallel run have one each."""
    base = os.environ.get("GOODPUT_TEST_SANDBOX", "tests")
    return base + os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")


class Kubectl:
    """kubectl as an administrator; nothing raises for an exit status."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.argv = [str(sandbox.binaries / "kubectl"), f"--kubeconfig={sandbox.kubeconfig}"]

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """``kubectl ARGUMENTS``."""
        return subprocess.run(
            [*self.argv, *arguments], input=stdin, capture_output=True, text=True, timeout=90
        )

    def apply(self, *manifests: Manifest) -> subprocess.CompletedProcess[str]:
        """``kubectl apply -f -``."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        body = manifests[0] if len(manifests) == 1 else items
        return self.run("apply", "-f", "-", stdin=json.dumps(body))


class Tenant:
    """Everything a test does, as a user would do it."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self.sandbox, self.name = sandbox, name
        self.kubectl = Kubectl(sandbox)
        self.api = api_of(sandbox)
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # Setting up

    def apply(self, *manifests: Manifest) -> None:
        """Apply, and fail the test if that is refused."""
        done = self.kubectl.apply(*manifests)
        assert done.returncode == 0, done.stderr

    def nodes(self, count: int, gpus: int = 1) -> list[str]:
        """Simulated nodes that only this tenant's queue leads to."""
        return self.sandbox.add_simulated_nodes(
            count, prefix=self.name, accelerators=gpus, labels={TENANT_LABEL: self.name}
        )

    def queue(self, gpus: int, *, check: bool = False) -> None:
        """A queue with that quota, on a flavour that selects this tenant's nodes."""
        quotas = [(GPU, str(gpus)), ("cpu", "10k"), ("memory", "10Ti")]
        flavor = {
            "name": self.name,
            "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas],
        }
        spec: Manifest = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {"coveredResources": [name for name, _ in quotas], "flavors": [flavor]}
            ],
        }
        if check:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": self.name}]}
            self.apply(kueue("AdmissionCheck", self.name, {"controllerName": "goodput.dev/power"}))
        self.apply(
            kueue("ResourceFlavor", self.name, {"nodeLabels": {TENANT_LABEL: self.name}}),
            kueue("ClusterQueue", self.name, spec),
            kueue("LocalQueue", "main", {"clusterQueue": self.name}, self.name),
        )

    def stop_queue(self, policy: str) -> None:
        """``None``, ``Hold`` or ``HoldAndDrain``."""
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        self.sandbox.kubectl("patch", "clusterqueue", self.name, "--type=merge", "-p", patch)

    def submit(
        self,
        name: str = "job",
        replicas: int = 2,
        *,
        gpus: int = 1,
        least: int | None = None,
        queue: str = "main",
        priority: str | None = None,
        annotations: dict[str, str] | None = None,
        pod_spec: Manifest | None = None,
        **spec: Any,
    ) -> str:
        """A job of one role; ``annotations`` script its simulated pods."""
        elastic = {} if least is None else {"minReplicas": least}
        labels = {"kueue.x-k8s.io/queue-name": queue}
        if priority:
            labels["kueue.x-k8s.io/priority-class"] = priority
        container = {
            "name": "main",
            "image": "trainer",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: gpus}},
        }
        template = {
            "metadata": {"annotations": annotations or {}},
            "spec": {"containers": [container], **(pod_spec or {})},
        }
        self.apply(
            {
                "apiVersion": "goodput.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": self.name, "labels": labels},
                "spec": {
                    "roles": [
                        {"name": "worker", "replicas": replicas, "template": template, **elastic}
                    ],
                    **spec,
                },
            }
        )
        return name

    def patch(self, job: str, spec: Manifest) -> None:
        """Change a job's spec."""
        path = str(path_of("trainingjobs", self.name, job))
        assert self.api.request("PATCH", path, {"spec": spec}), f"no TrainingJob {job}"

    def annotate(self, annotations: dict[str, str], *pods: str) -> None:
        """Script simulated pods that run."""
        for name in pods:
            path = str(path_of("pods", self.name, name))
            self.api.request("PATCH", path, {"metadata": {"annotations": annotations}})

    def delete(self, kind: str, name: str = "", grace_seconds: int | None = None) -> None:
        """Delete an object of the tenant's namespace, or all of the kind; nobody waits for it."""
        path = path_of(kind, self.name, name)
        assert path is not None, f"tests/integration/api.py does not know {kind}"
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        self.api.request("DELETE", path, options)

    # Looking

    def get(self, kind: str, name: str = "") -> list[Manifest]:
        """Objects of a kind in the tenant's namespace, or the one of a name if it is there."""
        path = path_of(kind, self.name, name)
        if path is None:
            command = ("get", kind, "-n", self.name, *filter(None, [name]), "--ignore-not-found")
            found = json.loads(self.sandbox.kubectl(*command, "-o", "json") or "null")
        else:
            found = self.api.request("GET", path)
        if found is None:
            return []
        items: list[Manifest] = found.get("items", [found])
        return items

    def status(self, job: str) -> Manifest:
        """A job's status."""
        found = self.get("trainingjobs", job)
        status: Manifest = found[0].get("status", {}) if found else {}
        return status

    def pods(self, job: str, attempt: int | None = None) -> list[Manifest]:
        """A job's pods that are not being deleted, of one attempt or of all."""
        return [
            pod
            for pod in self.get("pods")
            if pod["metadata"]["labels"].get("goodput.dev/job") == job
            and not pod["metadata"].get("deletionTimestamp")
            and attempt in (None, int(pod["metadata"]["labels"]["goodput.dev/attempt"]))
        ]

    def nodes_of(self, job: str) -> set[str]:
        """The nodes that a job's pods are on."""
        return {pod["spec"]["nodeName"] for pod in self.pods(job)}

    def events(self, job: str) -> list[str]:
        """Reasons of the Events on a job, in the order in which they were recorded."""
        found = [e for e in self.get("events") if e["involvedObject"]["name"] == job]
        return [e["reason"] for e in sorted(found, key=lambda e: e["eventTime"])]

    def used_gpus(self) -> int:
        """GPUs of quota in use, as Kueue counts them."""
        queue = self.api.request("GET", str(path_of("clusterqueues", None, self.name))) or {}
        usage = queue.get("status", {}).get("flavorsUsage", [])
        return sum(
            int(resource["total"])
            for flavor in usage
            for resource in flavor["resources"]
            if resource["name"] == GPU
        )

    # Waiting

    def wait(self, job: str, phase: str, timeout: float = 30, **wanted: Any) -> Manifest:
        """Until the job is in a phase and its status fields have these values."""
        wanted["phase"] = phase

        def reached() -> tuple[bool, object]:
            status = self.status(job)
            seen = {name: status.get(name) for name in ("reason", "ready", "attempt", *wanted)}
            return all(status.get(name) == value for name, value in wanted.items()), seen

        wait_for(reached, timeout, f"TrainingJob {self.name}/{job} with {wanted}")
        return self.status(job)

    def eventually(self, check: Callable[[], Any], what: str, timeout: float = 30) -> None:
        """Until a check holds."""
        wait_for(lambda: (bool(value := check()), value), timeout, what)


def kueue(kind: str, name: str, spec: Manifest, namespace: str | None = None) -> Manifest:
    """An object of Kueue's API."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }
