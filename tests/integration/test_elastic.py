"""Gangs that may be smaller than asked for, on the real Kueue: what runs, and its quota."""

from __future__ import annotations

import pytest

from tests.integration.cluster import COMPLETE, NO_RESTARTS, Manifest, Tenant


def degraded(tenant: Tenant, job: str) -> tuple[str, str] | None:
    """Status and reason of that condition."""
    conditions = {each["type"]: each for each in tenant.status(job)["conditions"]}
    found = conditions.get("Degraded")
    return (found["status"], found["reason"]) if found else None


def world_sizes(tenant: Tenant, job: str) -> set[str]:
    """What the ranks are told of the size of the gang."""
    found = set()
    for pod in tenant.pods(job):
        env: list[Manifest] = pod["spec"]["containers"][0]["env"]
        found |= {each["value"] for each in env if each["name"] == "GOODPUT_WORLD_SIZE"}
    return found


def uses(tenant: Tenant, gpus: int) -> None:
    """Kueue counts so many GPUs as used."""
    tenant.eventually(lambda: tenant.used_gpus() == gpus, f"{gpus} GPUs of quota are used")


@pytest.mark.parametrize("check", [False, True], ids=["plain queue", "our check"])
def test_quota_for_a_part_runs_that_part(tenant: Tenant, check: bool) -> None:
    tenant.nodes(4)
    tenant.queue(3, check=check)
    job = tenant.submit(replicas=4, least=2)
    status = tenant.wait(job, "Running", ready="3/3")
    assert status["restarts"] == NO_RESTARTS
    assert degraded(tenant, job) == ("True", "QuotaForPart")
    assert world_sizes(tenant, job) == {"3"}
    uses(tenant, 3)
    tenant.annotate(COMPLETE, *(pod["metadata"]["name"] for pod in tenant.pods(job)))
    tenant.wait(job, "Complete")
    uses(tenant, 0)


@pytest.mark.parametrize("check", [False, True], ids=["plain queue", "our check"])
def test_room_for_a_part_runs_that_part_and_others_get_the_rest_of_the_quota(
    tenant: Tenant, check: bool
) -> None:
    mine = tenant.nodes(3)
    tenant.queue(4, check=check)
    job = tenant.submit(replicas=4, least=2)
    tenant.wait(job, "Running", ready="3/3")
    assert degraded(tenant, job) == ("True", "RoomForPart")
    assert tenant.nodes_of(job) == set(mine)
    uses(tenant, 3)
    other = tenant.submit("other", 1)
    tenant.wait(other, "Queued", reason="WaitingForNodes")
    uses(tenant, 3 if check else 4)  # Kueue counts as used what is admitted, not what is reserved.
    tenant.nodes(1)
    tenant.wait(other, "Running")
    assert tenant.status(job)["attempt"] == 1, "nobody has touched the smaller gang"


def test_a_node_lost_without_a_spare_makes_the_gang_smaller(tenant: Tenant) -> None:
    mine = tenant.nodes(4)
    tenant.queue(4)
    job = tenant.submit(replicas=4, least=3)
    tenant.wait(job, "Running", ready="4/4")
    assert degraded(tenant, job) is None
    tenant.sandbox.simulated.kill(mine[0])
    status = tenant.wait(job, "Running", 60, ready="3/3", attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert [each["replicas"] for each in status["attempts"]] == [4]
    assert world_sizes(tenant, job) == {"3"}
    assert degraded(tenant, job) == ("True", "RoomForPart")
    uses(tenant, 3)


def test_a_gang_that_was_smaller_is_whole_again_when_it_is_admitted_anew(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(4)
    job = tenant.submit(replicas=4, least=2)
    tenant.wait(job, "Running", ready="3/3")
    uses(tenant, 3)
    tenant.stop_queue("HoldAndDrain")
    tenant.eventually(lambda: not tenant.pods(job), "stopped")
    uses(tenant, 0)
    tenant.nodes(1)
    tenant.stop_queue("None")
    tenant.wait(job, "Running", 60, ready="4/4")
    assert degraded(tenant, job) == ("False", "WholeGang")
    uses(tenant, 4)
