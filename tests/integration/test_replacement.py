"""Restart scope Failed on the real API server and Kueue: the lost ranks are replaced, no others."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Tenant

MAX_SECONDS = 60.0


def uids(tenant: Tenant, job: str) -> dict[str, str]:
    """UIDs of the pods that are not being deleted, by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in tenant.pods(job)}


def node_of(tenant: Tenant, pod: str) -> str:
    name: str = tenant.get("pods", pod)[0]["spec"]["nodeName"]
    return name


@pytest.fixture
def running(tenant: Tenant) -> tuple[Tenant, str]:
    """A running job of three ranks, with room for two more."""
    tenant.nodes(5)
    tenant.queue(3)
    job = tenant.submit(replicas=3, faultTolerance={"restartScope": "Failed"})
    tenant.wait(job, "Running")
    return tenant, job


def test_case_19_a_lost_node_costs_its_rank_and_no_other(running: tuple[Tenant, str]) -> None:
    tenant, job = running
    before = uids(tenant, job)
    tenant.sandbox.simulated.make_not_ready(node_of(tenant, "job-a1-worker-1"))
    tenant.eventually(
        lambda: "job-a1-worker-1-r1" in uids(tenant, job), "rank replaced", MAX_SECONDS
    )
    status = tenant.wait(job, "Running", MAX_SECONDS, attempt=1, ready="3/3")
    after = uids(tenant, job)
    assert {name for name in before if after.get(name) == before[name]} == {
        "job-a1-worker-0",
        "job-a1-worker-2",
    }
    assert {cause: n for cause, n in status["restarts"].items() if n} == {"infrastructure": 1}
    assert len(status["replacements"]) == 1
    tenant.eventually(lambda: tenant.used_gpus() == 3, "the quota held throughout")


def test_case_19_a_deleted_pod_is_replaced_alone(running: tuple[Tenant, str]) -> None:
    tenant, job = running
    before = uids(tenant, job)
    tenant.sandbox.kubectl("delete", "pod", "job-a1-worker-2", "-n", tenant.name, "--wait=false")
    tenant.eventually(
        lambda: "job-a1-worker-2-r1" in uids(tenant, job), "rank replaced", MAX_SECONDS
    )
    tenant.wait(job, "Running", MAX_SECONDS, attempt=1, ready="3/3")
    after = uids(tenant, job)
    assert after["job-a1-worker-0"] == before["job-a1-worker-0"]
    assert after["job-a1-worker-1"] == before["job-a1-worker-1"]


def test_the_rank_that_hosts_the_rendezvous_takes_the_gang_with_it(
    running: tuple[Tenant, str],
) -> None:
    tenant, job = running
    tenant.sandbox.simulated.make_not_ready(node_of(tenant, "job-a1-worker-0"))
    status = tenant.wait(job, "Running", MAX_SECONDS, attempt=2, ready="3/3")
    assert status.get("replacements", []) == []
