"""Gangs that may be smaller than asked for: how many ranks run, and what quota they hold."""

from dataclasses import replace
from typing import Any

import pytest

from goodput_operator.api.status import Condition, Outcome, Phase, Restarts
from goodput_operator.domain.model import JobKey, Silence
from tests.unit.domain.world import World, job_spec

SHRINK = 30


def world_of(
    nodes: int, quota: int = 1000, replicas: int = 4, least: int | None = 2, **spec: Any
) -> tuple[World, JobKey]:
    world = World(quota=quota)
    world.add_nodes(*(f"n{i}" for i in range(nodes)))
    key = world.submit(spec=job_spec(replicas, least=least, **spec))
    world.run(key)
    return world, key


def degraded(world: World, key: JobKey) -> Condition | None:
    return next((each for each in world.job(key).conditions if each.type == "Degraded"), None)


def later(world: World, key: JobKey, seconds: float) -> None:
    world.now += seconds
    world.run(key)


def test_quota_for_a_part_runs_that_part_and_says_so() -> None:
    world, key = world_of(nodes=6, quota=3)
    status = world.job(key)
    assert (status.phase, status.ready, status.replicas) == (Phase.RUNNING, "3/3", 3)
    assert len(world.pods_of(key)) == 3
    assert world.used() == 3
    condition = degraded(world, key)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "QuotaForPart")
    assert "3 of 4 ranks of role worker" in condition.message
    assert world.reasons(key).count("Degraded") == 1


def test_less_than_the_least_waits_in_its_queue() -> None:
    world, key = world_of(nodes=6, quota=1)
    assert (world.job(key).phase, world.pods, degraded(world, key)) == (Phase.QUEUED, {}, None)


def test_without_min_replicas_it_is_all_or_none() -> None:
    world, key = world_of(nodes=6, quota=3, least=None)
    assert (world.job(key).phase, world.pods) == (Phase.QUEUED, {})
    world, key = world_of(nodes=3, least=None)
    for _ in range(2):
        later(world, key, SHRINK)
    assert (world.job(key).phase, world.pods, world.used()) == (Phase.PENDING, {}, 0)


def test_room_for_a_part_is_taken_after_a_while_and_the_rest_of_the_quota_goes_back() -> None:
    world, key = world_of(nodes=3)
    assert (world.job(key).reason, world.used()) == ("WaitingForNodes", 4)
    later(world, key, SHRINK - 1)
    assert not world.pods
    later(world, key, 1)
    status = world.job(key)
    assert (status.phase, status.ready) == (Phase.RUNNING, "3/3")
    assert world.used() == 3, "what is not used is for others"
    condition = degraded(world, key)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "RoomForPart")


def test_room_for_less_than_the_least_gives_the_quota_back_as_ever() -> None:
    world, key = world_of(nodes=1)
    for _ in range(2):
        later(world, key, SHRINK)
    assert (world.job(key).phase, world.pods, world.used()) == (Phase.PENDING, {}, 0)


def test_a_lost_node_without_another_makes_the_gang_smaller() -> None:
    world, key = world_of(nodes=4)
    assert degraded(world, key) is None, "it appears with the first smaller gang"
    world.lose("n0")
    later(world, key, 2)
    assert (world.job(key).phase, world.used()) == (Phase.RESTARTING, 4)
    later(world, key, SHRINK)
    status = world.job(key)
    assert (status.phase, status.attempt, status.ready) == (Phase.RUNNING, 2, "3/3")
    assert status.restarts == Restarts(infrastructure=1)
    assert [each.replicas for each in status.attempts] == [4]
    assert (world.used(), len(world.workloads)) == (3, 1)


def test_a_lost_node_with_a_spare_keeps_the_gang_whole() -> None:
    world, key = world_of(nodes=5)
    world.lose("n0")
    later(world, key, 2)
    assert (world.job(key).ready, world.used(), degraded(world, key)) == ("4/4", 4, None)


def test_it_shrinks_again_with_what_is_left_of_its_quota_and_no_further_than_the_least() -> None:
    world, key = world_of(nodes=4)
    for name, left in (("n0", 3), ("n1", 2)):
        world.lose(name)
        later(world, key, 2)
        later(world, key, SHRINK)
        assert (world.job(key).ready, world.used()) == (f"{left}/{left}", left)
    world.lose("n2")
    for _ in range(5):
        later(world, key, 20)
        if world.job(key).phase is Phase.PENDING:
            break
    status = world.job(key)
    assert (status.phase, status.reason, world.used()) == (Phase.PENDING, "WaitingForNodes", 0)
    condition = degraded(world, key)
    assert condition is not None
    assert condition.status == "False", "nothing runs, smaller or not"


def test_released_quota_is_asked_for_whole_again() -> None:
    world, key = world_of(nodes=3)
    later(world, key, SHRINK)
    assert world.workload(key).reclaimable == {"worker": 1}
    world.evict(key, "Preempted")
    world.add_nodes("n8")
    world.run(key)
    status = world.job(key)
    assert (status.ready, world.used(), world.workload(key).reclaimable) == ("4/4", 4, {})
    condition = degraded(world, key)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "WholeGang")


def test_a_smaller_gang_completes_the_job() -> None:
    world, key = world_of(nodes=6, quota=2)
    world.finish(key)
    world.run(key)
    assert (world.job(key).phase, world.used()) == (Phase.COMPLETE, 0)
    assert world.job(key).attempts[-1].outcome is Outcome.SUCCEEDED


def test_other_roles_keep_all_their_ranks() -> None:
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(4)))
    roles = [
        {"name": "lead", "replicas": 2, "template": job_spec().roles[0].template},
        {
            "name": "worker",
            "replicas": 4,
            "minReplicas": 1,
            "template": job_spec().roles[0].template,
        },
    ]
    key = world.submit(spec=job_spec().model_validate({"roles": roles}))
    world.run(key)
    later(world, key, SHRINK)
    assert [pod.role for pod in world.pods_of(key)] == ["lead", "lead", "worker", "worker"]
    assert (world.job(key).ready, world.used()) == ("4/4", 4)


def test_another_job_gets_what_a_smaller_gang_gives_back() -> None:
    world, key = world_of(nodes=3, quota=4)
    other = world.submit("other", job_spec(1))
    world.run(other)
    assert world.job(other).phase is Phase.QUEUED
    later(world, key, SHRINK)
    world.run(other)
    assert (world.used(), world.job(other).reason) == (4, "WaitingForNodes")


@pytest.mark.parametrize("silent", [False, True])
def test_nobody_shrinks_while_the_control_plane_is_taken_to_be_sick(silent: bool) -> None:
    world, key = world_of(nodes=4)
    others = [f"cpu{i}" for i in range(12)]
    world.add_nodes(*others, gpus=0)
    del world.nodes["n0"]
    world.run(key)
    if silent:
        for name in others:
            world.nodes[name] = replace(
                world.nodes[name],
                ready=False,
                ready_since=world.now,
                unknown=True,
                silence=Silence(world.now, None),
            )
    later(world, key, SHRINK + 2)
    assert world.job(key).attempt == (1 if silent else 2)


@pytest.mark.parametrize("room", range(2, 9))
@pytest.mark.parametrize("per_node", [1, 2, 3])
def test_as_many_ranks_run_as_there_is_room_for(room: int, per_node: int) -> None:
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(room // per_node)), gpus=per_node)
    if room % per_node:
        world.add_nodes("rest", gpus=room % per_node)
    key = world.submit(spec=job_spec(8, least=2))
    world.run(key)
    later(world, key, SHRINK)
    assert (len(world.pods_of(key)), world.used()) == (room, room)
