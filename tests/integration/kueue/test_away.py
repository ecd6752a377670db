"""Kueue is killed, and comes back. Training goes on, and all is right within seconds after."""

from __future__ import annotations

import time

from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.kueue.conftest import (
    SECONDS,
    SOON,
    Kueue,
    condition,
    is_true,
    told,
    uids,
    workload,
)

AWAY_SECONDS = 30


def test_kueue_away_while_jobs_run_wait_arrive_and_lose_a_node(
    tenant: Tenant, kueue: Kueue
) -> None:
    tenant.nodes(4)
    tenant.queue(3)
    tenant.submit("quiet", replicas=1)
    tenant.wait("quiet", "Running")
    tenant.submit("struck", replicas=2)
    tenant.wait("struck", "Running")
    tenant.submit("waiting", replicas=2)
    tenant.eventually(lambda: tenant.status("waiting").get("reason") == "WaitingForQuota", "waits")
    quiet, admission = uids(tenant, "quiet"), workload(tenant, "struck")
    kueue.kill()
    began = time.monotonic()
    tenant.submit("late", replicas=1)
    lost = tenant.status("struck")["placement"]["nodes"][0]
    tenant.sandbox.simulated.kill(lost)
    assert "Kueue" in told(tenant, "late", "WebhookFailing")
    # Pods pass Kueue's webhook too, so the next attempt is placed, and says what it waits for.
    tenant.eventually(lambda: tenant.status("struck")["attempt"] == 2, "placed anew", 20)
    assert "mpod.kb.io" in told(tenant, "struck", "WebhookFailing")
    assert tenant.status("struck")["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    time.sleep(max(0.0, began + AWAY_SECONDS - time.monotonic()))
    assert uids(tenant, "quiet") == quiet
    assert tenant.pods("struck") == []
    assert "NotStarted" in tenant.events("struck"), "case 11: admitted, without pods"
    kueue.start()
    status = tenant.wait("struck", "Running", SOON, ready="2/2", attempt=2)
    assert lost not in status["placement"]["nodes"]
    now = workload(tenant, "struck")
    assert now["metadata"]["uid"] == admission["metadata"]["uid"]
    before, after = (
        next(c for c in each["status"]["conditions"] if c["type"] == "Admitted")
        for each in (admission, now)
    )
    assert after == before, "within the admission that it had"
    tenant.eventually(
        lambda: tenant.status("late").get("reason") == "WaitingForQuota", "late queued", SOON
    )
    assert condition(tenant, "waiting")["reason"] == "WaitingForQuota"
    assert uids(tenant, "quiet") == quiet
    tenant.delete("trainingjobs", "struck")
    tenant.eventually(
        lambda: any(tenant.status(job)["phase"] == "Running" for job in ("waiting", "late")),
        "one that waited is admitted",
        30,
    )
    assert tenant.status("quiet")["restarts"] == NO_RESTARTS


def test_kueue_killed_while_it_evicts_and_while_quota_is_given_back(
    room: Tenant, kueue: Kueue
) -> None:
    job = room.submit()
    room.wait(job, "Running")
    uid = workload(room, job)["metadata"]["uid"]
    # The eviction is written, and Kueue is gone before it can be answered.
    room.stop_queue("HoldAndDrain")
    room.eventually(lambda: is_true(workload(room, job), "Evicted"), "evicted")
    kueue.kill()
    room.eventually(lambda: not room.pods(job), "stopped", SECONDS)
    kueue.start()
    room.eventually(lambda: room.used_gpus() == 0, "quota given back", SOON)
    kueue.restart()
    room.stop_queue("None")
    status = room.wait(job, "Running", 30, attempt=2)
    assert status["restarts"] == NO_RESTARTS
    assert workload(room, job)["metadata"]["uid"] == uid


def test_kueue_restarted_while_a_job_waits_and_one_runs(room: Tenant, kueue: Kueue) -> None:
    runs = room.submit("runs")
    room.wait(runs, "Running")
    pods = uids(room, runs)
    waits = room.submit("waits")
    room.eventually(lambda: room.status(waits).get("phase") == "Queued", "queued")
    kueue.restart()
    room.patch(runs, {"suspend": True})
    room.wait(waits, "Running", 30)
    room.wait(runs, "Suspended")
    room.patch(waits, {"suspend": True})
    room.patch(runs, {"suspend": False})
    room.wait(runs, "Running", 30, attempt=2)
    assert uids(room, runs).isdisjoint(pods)
    assert room.status(runs)["restarts"] == NO_RESTARTS
