"""A placement is recorded before anything of it is made, also if others write all the time."""

from __future__ import annotations

from typing import Any

from tests.integration.api import path_of
from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.edits import hands
from tests.integration.record import Record


def busy(tenant: Tenant, job: str) -> Any:
    """Writes to the job without a pause: every version that anybody knows is old at once."""
    path = str(path_of("trainingjobs", tenant.name, job))

    def annotate(times: int) -> None:
        tenant.api.request("PATCH", path, {"metadata": {"annotations": {"times": str(times)}}})

    return annotate


def test_a_job_that_is_written_to_all_the_time_starts_as_it_is_recorded(
    tenant: Tenant, record: Record
) -> None:
    tenant.nodes(4)
    tenant.queue(4, check=True)
    job = tenant.submit(suspend=True)
    with hands.meanwhile(busy(tenant, job)) as counts:
        tenant.patch(job, {"suspend": False})
        tenant.wait(job, "Running", 60, ready="2/2")
        hands.consistent(tenant, job)
        tenant.sandbox.simulated.delete(sorted(tenant.status(job)["placement"]["nodes"])[0])
        status = tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
        hands.consistent(tenant, job)
    assert min(counts) > 50
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert all(len(times) == 1 for times in record.placements(tenant.name, job).values())
    assert set(record.made("pods", tenant.name, job).values()) == {1}
    assert set(record.made("workloads", tenant.name, job).values()) == {1}


def test_what_somebody_writes_to_the_status_is_written_over_or_taken_away(tenant: Tenant) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    job = tenant.submit()
    before = tenant.wait(job, "Running", ready="2/2")
    lie = {"reason": "Because", "ready": "7/7", "readyReplicas": 7}
    hands.patch(tenant, "trainingjobs", job, {"status": lie}, "status")
    tenant.wait(job, "Running", 10, reason="AllRanksReady", ready="2/2", readyReplicas=2)
    # Ours when it goes, but for a part that somebody else wrote.
    nodes = {"nodes": before["placement"]["nodes"]}
    path = str(path_of("trainingjobs", tenant.name, job))
    hands.patch(tenant, "trainingjobs", job, {"status": {"placement": {"nodes": ["x"]}}}, "status")
    hands.patch(tenant, "trainingjobs", job, {"status": {"placement": nodes}}, "status")
    waiting = {"status": {"waitingSince": "2026-01-01T00:00:00Z"}}
    tenant.api.request("PATCH", f"{path}/status", waiting)
    tenant.eventually(lambda: "waitingSince" not in tenant.status(job), "taken away")
    tenant.patch(job, {"suspend": True})
    status = tenant.wait(job, "Suspended", 60)
    assert "placement" not in status
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", 60, ready="2/2")
    hands.consistent(tenant, job)


def test_an_emptied_status_is_made_anew_and_no_number_is_used_twice(
    tenant: Tenant, record: Record
) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    job = tenant.submit()
    tenant.wait(job, "Running", ready="2/2")
    found = tenant.get("trainingjobs", job)[0]
    # A phase that may follow, for the test that all of them lie on the graph of the docs.
    emptied = {"phase": "Restarting", "conditions": found["status"]["conditions"]}
    path = f"{path_of('trainingjobs', tenant.name, job)}/status"
    tenant.api.request("PUT", path, {**found, "status": emptied})
    tenant.wait(job, "Running", 60, ready="2/2", attempt=2)
    hands.consistent(tenant, job)
    assert set(record.made("pods", tenant.name, job).values()) == {1}
