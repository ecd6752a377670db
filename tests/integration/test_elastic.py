"""Gangs that may be smaller than asked for, on the real Kueue: what runs, and its quota."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.cluster import COMPLETE, NO_RESTARTS, Manifest, Tenant
from tests.integration.test_progress import rank_zero

CHECKPOINT = {"uri": "gs://bucket/run", "gracePeriodSeconds": 5}


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


def slices(tenant: Tenant) -> list[str]:
    """Names of the Workloads that ask for more."""
    names = (str(each["metadata"]["name"]) for each in tenant.get("workloads"))
    return [name for name in names if "-g" in name]


def test_quota_that_comes_free_makes_the_gang_whole_after_a_checkpoint(tenant: Tenant) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    first = tenant.submit("first", 2)
    tenant.wait(first, "Running")
    job = tenant.submit(
        replicas=4, least=2, checkpoint=CHECKPOINT, faultTolerance={"maxCrashRestarts": 0}
    )
    tenant.wait(job, "Running", ready="2/2")
    reporter = rank_zero(tenant, job)
    token = reporter.token()
    assert reporter.post(token, checkpointStep=4)[0] == 200
    tenant.annotate(COMPLETE, *(pod["metadata"]["name"] for pod in tenant.pods(first)))
    tenant.wait(first, "Complete")
    tenant.eventually(lambda: "Growing" in tenant.events(job), "it has the quota", 60)
    assert tenant.status(job)["attempt"] == 1, "nothing is stopped before it has saved"
    uses(tenant, 4)
    code, answer = reporter.post(token, step=9)
    assert (code, "checkpointRequest" in json.loads(answer)) == (200, True)
    assert reporter.post(token, step=9, checkpointStep=9)[0] == 200
    status = tenant.wait(job, "Running", 60, ready="4/4", attempt=2)
    assert status["restarts"] == NO_RESTARTS
    assert status["placement"]["resumeStep"] == 9
    (record,) = status["attempts"]
    assert (record["outcome"], record["replicas"]) == ("Resized", 2)
    assert world_sizes(tenant, job) == {"4"}
    assert degraded(tenant, job) == ("False", "WholeGang")
    uses(tenant, 4)
    mine = [each for each in tenant.get("workloads") if job in each["metadata"]["name"]]
    assert len(mine) == 1, "what has handed its quota over is deleted"


@pytest.mark.parametrize("check", [False, True], ids=["plain queue", "our check"])
def test_nodes_that_come_make_the_gang_whole(tenant: Tenant, check: bool) -> None:
    tenant.nodes(2)
    tenant.queue(4, check=check)
    job = tenant.submit(replicas=4, least=2)
    tenant.wait(job, "Running", ready="2/2")
    uses(tenant, 2)
    tenant.nodes(2)
    status = tenant.wait(job, "Running", 90, ready="4/4", attempt=2)
    assert status["restarts"] == NO_RESTARTS
    uses(tenant, 4)
    tenant.annotate(COMPLETE, *(pod["metadata"]["name"] for pod in tenant.pods(job)))
    tenant.wait(job, "Complete")
    uses(tenant, 0)


def test_a_gang_that_asks_for_more_is_left_alone_until_there_is_quota(tenant: Tenant) -> None:
    """And it asks no more when there is no room, or no gang."""
    mine = tenant.nodes(4)
    tenant.queue(2)
    job = tenant.submit(replicas=4, least=2)
    tenant.wait(job, "Running", ready="2/2")
    pods = {pod["metadata"]["uid"] for pod in tenant.pods(job)}
    for _ in range(2):
        tenant.eventually(lambda: slices(tenant), "it asks", 60)
        free = sorted(set(mine) - tenant.nodes_of(job))
        tenant.sandbox.kubectl("cordon", *free)
        tenant.eventually(lambda: not slices(tenant), "it asks no more", 60)
        tenant.sandbox.kubectl("uncordon", *free)
    tenant.eventually(lambda: slices(tenant), "it asks again", 60)
    time.sleep(5)
    assert {pod["metadata"]["uid"] for pod in tenant.pods(job)} == pods, "untouched all the time"
    uses(tenant, 2)
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    tenant.eventually(lambda: not slices(tenant), "nothing asks for a gang that is no more")
    uses(tenant, 0)
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", ready="2/2", attempt=2)
