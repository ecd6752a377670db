"""What is left of a failed job tells why it failed."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Tenant

MAX_SECONDS = 60.0


def crash(code: int = 3, after: str = "1s", message: str = "") -> dict[str, str]:
    """Annotations by which a simulated pod fails."""
    prefix = "sandbox.goodput.dev/fail"
    said = {f"{prefix}-message": message} if message else {}
    return {f"{prefix}-exit-code": str(code), f"{prefix}-after": after, **said}


@pytest.fixture
def ready(tenant: Tenant) -> Tenant:
    """A tenant with two nodes and quota for both."""
    tenant.nodes(2)
    tenant.queue(2)
    return tenant


def failed_message(tenant: Tenant, job: str) -> str:
    conditions = tenant.status(job)["conditions"]
    message: str = next(each["message"] for each in conditions if each["type"] == "Failed")
    return message


@pytest.mark.parametrize(("retention", "kept"), [("All", True), ("Failed", True), ("None", False)])
def test_failed_pods_of_the_last_attempt_stay_as_pod_retention_says(
    ready: Tenant, retention: str, kept: bool
) -> None:
    job = ready.submit(
        annotations=crash(),
        podRetention=retention,
        faultTolerance={"maxCrashRestarts": 1, "crashBackoff": {"baseSeconds": 1}},
    )
    ready.wait(job, "Failed", MAX_SECONDS, attempt=2)
    ready.eventually(
        lambda: not [p for p in ready.pods(job) if p["status"]["phase"] != "Failed"], "stopped"
    )
    if not kept:
        ready.eventually(lambda: not ready.pods(job), "no pod kept")
    # A rank that had not failed yet was stopped with the gang; the one that is blamed is kept.
    blamed = [p for p in ready.pods(job) if p["metadata"]["name"] in failed_message(ready, job)]
    assert len(blamed) == kept
    assert ready.pods(job, 1) == []
    ready.eventually(lambda: ready.used_gpus() == 0, "quota given back")


@pytest.mark.parametrize(("retention", "kept"), [("All", 2), ("Failed", 0), ("None", 0)])
def test_succeeded_pods_stay_as_pod_retention_says(
    ready: Tenant, retention: str, kept: int
) -> None:
    done = {"sandbox.goodput.dev/complete-after": "1s"}
    job = ready.submit(annotations=done, podRetention=retention)
    ready.wait(job, "Complete")
    ready.eventually(lambda: len(ready.pods(job)) == kept, f"{kept} pods kept")


def test_case_22_of_a_failed_job_no_pod_runs_on(ready: Tenant) -> None:
    """One rank fails, the other would run for ever."""
    roles = [
        {
            "name": name,
            "replicas": 1,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "trainer",
                            "resources": {"limits": {"nvidia.com/gpu": 1}},
                        }
                    ]
                },
            },
        }
        for name, annotations in (("steady", {}), ("broken", crash()))
    ]
    job = ready.submit(roles=roles, faultTolerance={"maxCrashRestarts": 0})
    ready.wait(job, "Failed", MAX_SECONDS)
    ready.eventually(
        lambda: (
            [p["metadata"]["labels"]["goodput.dev/role"] for p in ready.pods(job)] == ["broken"]
        ),
        "only the failed pod is left",
        15,
    )


def test_the_message_names_rank_node_exit_code_and_what_the_container_said(
    ready: Tenant,
) -> None:
    said = "ValueError: loss is nan at step 120"
    job = ready.submit(
        replicas=1,
        annotations=crash(code=42, message=said),
        faultTolerance={"maxCrashRestarts": 0},
    )
    status = ready.wait(job, "Failed", MAX_SECONDS)
    pod = ready.pods(job)[0]
    message = failed_message(ready, job)
    assert f"rank worker-0 (pod {pod['metadata']['name']} on node {pod['spec']['nodeName']})" in (
        message
    )
    assert f"container main exited with code 42: {said}" in message
    assert "maxCrashRestarts of 0" in message
    attempt = status["attempts"][-1]
    assert said in attempt["message"]
    assert attempt["nodes"] == [pod["spec"]["nodeName"]]
    crashes = [e for e in ready.get("events") if e["reason"] == "RankCrashed"]
    assert len(crashes) == 1
    assert said in (crashes[0].get("message") or crashes[0].get("note", ""))
