"""A spec edited while a change is under way, by one writer or two."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from typing import Any

import pytest

from tests.integration.api import path_of
from tests.integration.cluster import COMPLETE, CRASH, NO_RESTARTS, Tenant
from tests.integration.edits import hands
from tests.integration.scrape import REJECTED, operator_samples, requests

WRITES = {"create", "apply", "patch", "update", "delete"}


def rejected(tenant: Tenant) -> int:
    """Writes of the operator's that the API server has refused."""
    seen = requests(tenant.sandbox, WRITES)
    return sum(count for (_, _, code), count in seen.items() if code in REJECTED)


def bugs(tenant: Tenant) -> float:
    """Decisions that have ended in a traceback."""
    name = "goodput_operator_errors_total"
    samples = operator_samples(tenant.sandbox)
    return sum(s.value for s in samples if s.name == name and s.labels["kind"] == "bug")


def roles_of(tenant: Tenant, job: str, replicas: int, image: str) -> list[Any]:
    """The job's only role, of that size and image."""
    role = copy.deepcopy(tenant.get("trainingjobs", job)[0]["spec"]["roles"][0])
    role["template"]["spec"]["containers"][0]["image"] = image
    return [{**role, "replicas": replicas}]


@pytest.fixture
def job(tenant: Tenant) -> str:
    """A job of two ranks that runs, with room for more."""
    tenant.nodes(4)
    tenant.queue(4)
    job = tenant.submit()
    tenant.wait(job, "Running", ready="2/2")
    return job


def test_case_13_suspend_toggled_faster_than_anything_can_follow(tenant: Tenant, job: str) -> None:
    before = rejected(tenant)
    for times in range(10):
        tenant.patch(job, {"suspend": True})
        time.sleep(0.05 * times)
        tenant.patch(job, {"suspend": False})
        time.sleep(0.05 * times)
    status = tenant.wait(job, "Running", 60, ready="2/2")
    assert status["restarts"] == NO_RESTARTS
    hands.consistent(tenant, job)
    assert rejected(tenant) == before


def test_roles_changed_and_resumed_at_once_restart_the_gang_whole(tenant: Tenant, job: str) -> None:
    for replicas, image in ((3, "two"), (1, "three"), (4, "four")):
        roles = roles_of(tenant, job, replicas, image)
        tenant.patch(job, {"suspend": True})
        tenant.patch(job, {"roles": roles})
        tenant.patch(job, {"suspend": False})
    status = tenant.wait(job, "Running", 60, ready="4/4")
    assert status["restarts"] == NO_RESTARTS
    hands.consistent(tenant, job)
    tenant.patch(job, {"suspend": True})
    tenant.patch(job, {"framework": "JAX"})
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", 60, ready="4/4", attempt=status["attempt"] + 1)
    hands.consistent(tenant, job)
    for pod in tenant.pods(job):
        environment = {each["name"] for each in pod["spec"]["containers"][0]["env"]}
        assert "JAX_PROCESS_ID" in environment


def test_budgets_deadline_and_retention_count_as_they_are_now(tenant: Tenant) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    crashed = tenant.submit("crashed", replicas=1, annotations=CRASH)
    kept = tenant.submit("kept", replicas=1, annotations=COMPLETE)
    late = tenant.submit("late", replicas=1)
    tenant.wait(late, "Running")
    tenant.wait(kept, "Complete")
    assert len(tenant.pods(kept)) == 1
    tenant.patch(kept, {"podRetention": "None"})
    tenant.eventually(lambda: not tenant.pods(kept), "pods no longer wanted are deleted")
    tenant.patch(late, {"activeDeadlineSeconds": 1})
    assert tenant.wait(late, "Failed")["reason"] == "DeadlineExceeded"
    tenant.eventually(
        lambda: tenant.status(crashed).get("restarts", {}).get("crash") == 1, "a crash"
    )
    tenant.patch(crashed, {"faultTolerance": {"maxCrashRestarts": 0}})
    status = tenant.wait(crashed, "Failed", 60)
    assert status["reason"] == "CrashBudgetExhausted"


def test_labels_of_a_job_that_runs_and_of_one_that_waits(tenant: Tenant, job: str) -> None:
    classes = [f"{tenant.name}-{name}" for name in ("low", "high")]
    for value, name in enumerate(classes, -2):  # Lower than that of a job without a class.
        tenant.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    waiting = tenant.submit("waiting", replicas=4, priority=classes[0])
    tenant.wait(waiting, "Queued", reason="WaitingForQuota")
    pods = set(hands.names(tenant, job))
    for queue in ("nowhere", None, "main"):
        for name in (job, waiting):
            hands.label(tenant, name, queue_name=queue, priority_class=classes[1])
        reason = "QueueMissing" if queue is None else None
        tenant.eventually(
            lambda reason=reason: reason in (None, tenant.status(waiting)["reason"]), "told", 10
        )
        time.sleep(1)
        status = tenant.status(job)
        assert (status["phase"], status["attempt"]) == ("Running", 1)
        assert set(hands.names(tenant, job)) == pods
    tenant.patch(job, {"suspend": True})
    tenant.wait(waiting, "Running", 60, ready="4/4")
    hands.label(tenant, waiting, queue_name=None)
    tenant.patch(waiting, {"suspend": True})
    tenant.wait(waiting, "Suspended")
    tenant.patch(waiting, {"suspend": False})
    tenant.wait(waiting, "Pending", reason="QueueMissing")
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")


def test_two_writers_at_once_leave_a_job_that_is_what_its_spec_says(
    tenant: Tenant, job: str
) -> None:
    before, path = bugs(tenant), str(path_of("trainingjobs", tenant.name, job))

    def apply(times: int) -> None:
        body = {
            "apiVersion": "goodput.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": job, "namespace": tenant.name},
            "spec": {
                "suspend": times % 3 == 0,
                "activeDeadlineSeconds": 1000 + times,
                "faultTolerance": {"maxCrashRestarts": times % 5},
            },
        }
        force = ["--force-conflicts"] if times % 2 else []
        # Without force it is refused while the other writer owns a field: that is what it is for.
        asked = ("apply", "--server-side", "--field-manager=second", *force, "-f", "-")
        tenant.kubectl.run(*asked, stdin=json.dumps(body))

    def update(times: int) -> None:
        found = tenant.api.request("GET", path)
        assert found
        found["spec"]["podRetention"] = ("All", "Failed", "None")[times % 3]
        if found["spec"].get("suspend"):
            found["spec"]["roles"][0]["replicas"] = 1 + times % 4
            found["spec"]["suspend"] = times % 2 == 0
        if times % 7 == 0:
            queue = ("main", "nowhere")[times % 2]
            found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
        with contextlib.suppress(AssertionError):  # The other one was faster.
            tenant.api.request("PUT", path, found)
        time.sleep(0.05)

    with hands.meanwhile(apply, update) as counts:
        time.sleep(8)
    assert min(counts) > 5
    roles = roles_of(tenant, job, 3, "last")
    hands.label(tenant, job, queue_name="main")
    tenant.patch(job, {"suspend": True})
    tenant.patch(job, {"roles": roles})
    tenant.patch(job, {"suspend": False})
    status = tenant.wait(job, "Running", 60, ready="3/3")
    assert status["restarts"] == NO_RESTARTS
    hands.consistent(tenant, job)
    tenant.eventually(lambda: tenant.used_gpus() == 3, "quota counted once")
    assert bugs(tenant) == before
