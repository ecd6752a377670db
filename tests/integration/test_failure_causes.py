"""Failures are told apart by the marks that the real cluster leaves, and rules decide by them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.cluster import GPU, Tenant

MAX_SECONDS = 60.0


def crash(code: int) -> dict[str, str]:
    """Annotations by which a simulated pod fails after a second."""
    prefix = "sandbox.goodput.dev/fail"
    return {f"{prefix}-exit-code": str(code), f"{prefix}-after": "1s"}


def counts(status: dict[str, object], field: str = "restarts") -> dict[str, int]:
    """The causes that have happened at all."""
    found = status.get(field)
    assert isinstance(found, dict)
    return {cause: count for cause, count in found.items() if count}


def evict(tenant: Tenant, pod: str) -> None:
    """The eviction subresource, as ``kubectl drain`` uses it."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": tenant.name},
    }
    path = f"/api/v1/namespaces/{tenant.name}/pods/{pod}/eviction"
    tenant.sandbox.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))


def taint(tenant: Tenant, pod: str) -> None:
    """The pod's node is tainted, so that the taint manager deletes what does not tolerate it."""
    node = tenant.get("pods", pod)[0]["spec"]["nodeName"]
    tenant.sandbox.kubectl("taint", "node", node, "repair=now:NoExecute")


def crowd_out(tenant: Tenant, pod: str) -> None:
    """A pod of higher priority wants the very node of this one."""
    node = tenant.get("pods", pod)[0]["spec"]["nodeName"]
    tenant.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"{tenant.name}-high"},
            "value": 1000,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "crowd", "namespace": tenant.name},
            "spec": {
                "priorityClassName": f"{tenant.name}-high",
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "other", "resources": {"limits": {GPU: "1"}}}
                ],
            },
        },
    )


@pytest.mark.parametrize(
    ("disturb", "cause"),
    [(evict, "infrastructure"), (taint, "infrastructure"), (crowd_out, "preemption")],
    ids=["eviction API", "NoExecute taint", "preempted by kube-scheduler"],
)
def test_who_took_a_pod_decides_what_it_counts_as(
    tenant: Tenant, disturb: Callable[[Tenant, str], None], cause: str
) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    job = tenant.submit()
    tenant.wait(job, "Running")
    disturb(tenant, tenant.pods(job)[1]["metadata"]["name"])
    status = tenant.wait(job, "Running", MAX_SECONDS, attempt=2)
    assert counts(status) == {cause: 1}
    assert counts(status, "charged") == {cause: 1}


def test_a_listed_exit_code_fails_the_job_at_the_first_time(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    rules = [{"action": "Fail", "exitCodes": [42]}]
    job = tenant.submit(annotations=crash(42), faultTolerance={"rules": rules})
    status = tenant.wait(job, "Failed", MAX_SECONDS)
    assert (status["reason"], status["attempt"]) == ("FailureRule", 1)
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert "exited with code 42" in message
    assert "spec.faultTolerance.rules[0]: Fail" in message


def test_what_is_not_counted_does_not_use_up_the_budget(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    rules = [{"action": "RestartNotCounted", "signals": ["SIGBUS"]}]
    tolerance = {"maxCrashRestarts": 0, "crashBackoff": {"baseSeconds": 1}, "rules": rules}
    job = tenant.submit(annotations=crash(135), faultTolerance=tolerance)
    tenant.eventually(lambda: tenant.status(job).get("attempt", 0) >= 3, "attempt 3", MAX_SECONDS)
    status = tenant.status(job)
    assert status["restarts"]["crash"] >= 2
    assert counts(status, "charged") == {}
