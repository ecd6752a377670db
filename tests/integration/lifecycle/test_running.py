"""A job that runs: suspended and resumed, looked at, and left alone by its operator."""

from __future__ import annotations

import time
from collections.abc import Callable

from goodput_sandbox.operator_process import stop_operator
from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.record import Record
from tests.integration.scrape import REJECTED, operator_samples, requests
from tests.integration.transitions import allowed

WRITES = {"create", "patch", "apply", "update", "delete"}


def rejected(tenant: Tenant) -> dict[tuple[str, str, str], int]:
    """Writes of the operator that the API server would not have, however often tried."""
    return {
        key: count for key, count in requests(tenant.sandbox, WRITES).items() if key[2] in REJECTED
    }


def test_case_13_suspend_and_resume_ten_times_with_no_rejected_write(
    tenant: Tenant, record: Record
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    before = rejected(tenant)
    job = tenant.submit()
    tenant.wait(job, "Running")
    for round_ in range(2, 12):
        tenant.patch(job, {"suspend": True})
        tenant.wait(job, "Suspended")
        assert tenant.pods(job) == []
        tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
        tenant.patch(job, {"suspend": False})
        tenant.wait(job, "Running", attempt=round_)
    assert rejected(tenant) == before
    assert tenant.status(job)["restarts"] == NO_RESTARTS
    assert list(record.made("workloads", tenant.name, job).values()) == [1]
    assert set(record.made("pods", tenant.name, job).values()) == {1}


def test_case_09_what_a_job_goes_through_is_recorded_and_lies_on_the_graph(
    tenant: Tenant, record: Record
) -> None:
    """All jobs of this run are held to the graph: see the fixture ``record``."""
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", attempt=2)
    done = {"sandbox.goodput.dev/complete-after": "0s"}
    tenant.annotate(done, *(pod["metadata"]["name"] for pod in tenant.pods(job)))
    tenant.wait(job, "Complete")
    passed = ("phase", "Running", "Complete")
    tenant.eventually(lambda: passed in record.transitions_of(tenant.name, job), "recorded")
    seen = record.transitions_of(tenant.name, job)
    phases = {(old, new): n for (what, old, new), n in seen.items() if what == "phase"}
    assert phases["Starting", "Running"] == 2
    assert phases["Running", "Stopping"] == phases["Stopping", "Suspended"] == 1
    assert seen["Suspended", "", "True"] == seen["Suspended", "True", "False"] == 1
    assert seen["Complete", "", "True"] == 1
    assert [each for each in seen if not allowed(each)] == []


def test_a_killed_operator_goes_on_where_it_was(
    tenant: Tenant, operator: Callable[[], None]
) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    stop_operator(tenant.sandbox, kill=True)
    lost = min(tenant.nodes_of(job))
    tenant.sandbox.simulated.kill(lost)
    operator()
    status = tenant.wait(job, "Running", attempt=2)
    assert lost not in status["placement"]["nodes"]
    assert len(tenant.pods(job, 2)) == 2
    assert len(tenant.get("workloads.kueue.x-k8s.io")) == 1


def test_a_frozen_api_server_stops_nothing_and_is_caught_up_with(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.sandbox.freeze("kube-apiserver")
    try:
        time.sleep(20)
    finally:
        tenant.sandbox.thaw("kube-apiserver")
    assert tenant.status(job)["attempt"] == 1
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended", timeout=70)


def test_metrics_tell_of_a_job_and_vanish_with_it(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    seen = operator_samples(tenant.sandbox)
    mine = {each.name: each.value for each in seen if each.labels.get("namespace") == tenant.name}
    assert mine["goodput_job_attempt"] == 1
    assert mine["goodput_job_ready_ranks"] == 2
    assert any(each.name == "goodput_operator_reconcile_seconds_count" for each in seen)
    tenant.delete("trainingjobs", job)
    tenant.eventually(
        lambda: (
            not any(
                each.labels.get("namespace") == tenant.name
                for each in operator_samples(tenant.sandbox)
            )
        ),
        "series of the deleted job gone",
    )
