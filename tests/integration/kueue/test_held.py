"""Cases 2, 3 and 11: quota that is held though nothing runs on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from goodput_sandbox.operator_process import stop_operator
from tests.integration.api import path_of
from tests.integration.cluster import NO_RESTARTS, Manifest, Tenant
from tests.integration.kueue.conftest import (
    SECONDS,
    SOON,
    Kueue,
    admitted_unseen,
    condition,
    is_true,
    samples,
    told,
    workload,
)

HELD = "goodput_job_quota_held_seconds"
NOW = "%Y-%m-%dT%H:%M:%SZ"


def patch_status(tenant: Tenant, job: str, **status: Any) -> None:
    """Somebody else writes to the status of the job's Workload."""
    path = path_of("workloads", tenant.name, workload(tenant, job)["metadata"]["name"])
    tenant.api.request("PATCH", f"{path}/status", {"status": status})


def evicted_by_hand(tenant: Tenant, job: str, reason: str) -> None:
    """Somebody else sets ``Evicted``."""
    evicted: Manifest = {
        "type": "Evicted",
        "status": "True",
        "reason": reason,
        "message": "said somebody else",
        "lastTransitionTime": time.strftime(NOW, time.gmtime()),
    }
    before = workload(tenant, job)["status"]["conditions"]
    others = [each for each in before if each["type"] != "Evicted"]
    patch_status(tenant, job, conditions=[*others, evicted])


def test_case_02_admitted_and_evicted_without_pods_is_told_and_left_once(
    room: Tenant, kueue: Kueue, operator: Callable[[], None]
) -> None:
    job = room.submit()
    room.wait(job, "Running")
    stop_operator(room.sandbox, kill=True)
    room.stop_queue("HoldAndDrain")
    room.eventually(lambda: is_true(workload(room, job), "Evicted"), "evicted")
    room.delete("pods", grace_seconds=0)
    room.eventually(lambda: not room.get("pods"), "no pods")
    assert is_true(workload(room, job), "Admitted")
    kueue.misdirect()
    operator()
    message = told(room, job, "QuotaHeld", seconds=20)
    assert workload(room, job)["metadata"]["name"] in message
    assert "is evicted and no pod is left, but its quota is still held" in message
    assert "vworkload.kb.io" in message
    assert condition(room, job, "Admitted")["status"] == "False"
    assert samples(room, HELD, job)[0] > 0
    assert room.used_gpus() == 2, "which is why it matters"
    kueue.mend_webhooks()
    room.eventually(lambda: room.used_gpus() == 0, "released", SOON)
    room.eventually(lambda: not samples(room, HELD, job), "no longer held")
    released = workload(room, job)
    room.stop_queue("None")
    status = room.wait(job, "Running", attempt=2)
    assert workload(room, job)["metadata"]["uid"] == released["metadata"]["uid"]
    assert [each["outcome"] for each in status["attempts"]] == ["Evicted"]
    assert status["restarts"] == NO_RESTARTS
    assert Counter(room.events(job))["Evicted"] == 1
    time.sleep(2)
    assert room.status(job)["attempt"] == 2, "no loop"


def test_case_02_an_eviction_that_kueue_knows_nothing_of_is_left_once(room: Tenant) -> None:
    job = room.submit()
    room.wait(job, "Running")
    room.eventually(lambda: is_true(workload(room, job), "PodsReady"), "PodsReady")
    evicted_by_hand(room, job, "Maintenance")
    status = room.wait(job, "Running", attempt=2)
    assert [each["outcome"] for each in status["attempts"]] == ["Evicted"]
    assert status["restarts"] == NO_RESTARTS
    time.sleep(2)
    assert room.status(job)["attempt"] == 2, "no loop"
    assert not is_true(workload(room, job), "Evicted")


def test_case_03_a_gang_that_can_never_fill_is_not_started(room: Tenant) -> None:
    job = room.submit()
    nodes = room.wait(job, "Running")["placement"]["nodes"]
    room.stop_queue("HoldAndDrain")
    room.eventually(lambda: not room.get("pods") and room.used_gpus() == 0, "drained")
    room.sandbox.simulated.delete(nodes[0])
    room.stop_queue("None")
    room.eventually(lambda: room.used_gpus() == 2, "admitted again")
    deadline = time.monotonic() + 30
    while "QuotaReleased" not in room.events(job):
        assert room.get("pods") == [], "no part of it is started"
        assert time.monotonic() < deadline
    assert "1 node" in told(room, job, "WaitingForNodes")
    room.eventually(lambda: room.used_gpus() == 0, "given back")
    assert room.status(job)["attempt"] == 1
    room.nodes(1)
    room.wait(job, "Running", 60, attempt=2)


def test_case_11_admitted_without_pods_is_told_and_tried_again(room: Tenant) -> None:
    quota = {"metadata": {"name": "none", "namespace": room.name}, "spec": {"hard": {"pods": "0"}}}
    room.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    job = room.submit()
    room.eventually(lambda: "NotStarted" in room.events(job), "an Event", 20)
    event = next(each for each in room.get("events") if each["reason"] == "NotStarted")
    assert event["type"] == "Warning"
    assert "0 of 2 pods exist" in event["message"]
    assert "exceeded quota: none" in event["message"]
    room.sandbox.kubectl("delete", "resourcequota", "none", "-n", room.name)
    room.wait(job, "Running", 60)


def test_case_11_admitted_while_the_operator_was_down(
    room: Tenant, operator: Callable[[], None]
) -> None:
    job = admitted_unseen(room)
    operator()
    status = room.wait(job, "Running", SECONDS)
    assert status["attempt"] == 1
    assert len(room.pods(job)) == 2
