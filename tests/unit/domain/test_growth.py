"""Gangs that run smaller than asked for become larger: when, and what they hold until then."""

from dataclasses import replace
from typing import Any

import pytest

from goodput_operator.api.status import Outcome, Phase, Restarts
from goodput_operator.api.times import parse_time
from goodput_operator.domain.health import checkpoint_request
from goodput_operator.domain.model import JobKey, WorkloadCondition
from tests.unit.domain.test_elastic import SHRINK, degraded, later, world_of
from tests.unit.domain.world import World, job_spec

CHECKPOINT = {"uri": "gs://bucket/run", "gracePeriodSeconds": 20}
GROW, ROOM = 600, 60


def saves(world: World, key: JobKey, step: int) -> None:
    world.now += 1
    world.report(key, step=step, durable=step)
    world.run(key)


def small(quota: int = 1000, nodes: int = 2, **spec: Any) -> tuple[World, JobKey]:
    """Two ranks of four, for want of nodes or quota, which have saved step 100."""
    spec.setdefault("checkpoint", CHECKPOINT)
    world, key = world_of(nodes, quota, **spec)
    later(world, key, SHRINK)
    saves(world, key, 100)
    assert world.job(key).ready == "2/2"
    return world, key


def workloads(world: World, key: JobKey) -> dict[str, tuple[bool, bool]]:
    """The job's Workloads: whether each holds quota, and whether it asks for more."""
    return {
        name: (each.holds_quota, name in world.slices)
        for name, each in world.workloads.items()
        if each.owner_uid == world.jobs[key].uid
    }


def test_a_smaller_gang_grows_after_a_checkpoint_and_nothing_is_counted() -> None:
    world, key = small(faultTolerance={"maxCrashRestarts": 0})
    world.add_nodes("n8", "n9")
    later(world, key, GROW)
    later(world, key, ROOM)
    status = world.job(key)
    assert (status.attempt, status.ready, world.used()) == (1, "2/2", 4)
    assert status.growth is not None
    assert checkpoint_request(status) == int(world.now)
    assert len(world.workloads) == 1, "what has handed its quota over is deleted"
    saves(world, key, 140)
    status = world.job(key)
    assert (status.phase, status.attempt, status.ready) == (Phase.RUNNING, 2, "4/4")
    assert status.placement is not None
    assert status.placement.resume_step == 140
    assert (status.restarts, status.growth, world.used()) == (Restarts(), None, 4)
    record = status.attempts[-1]
    assert (record.outcome, record.cause, record.replicas) == (Outcome.RESIZED, None, 2)
    assert [each for each in world.reasons(key) if each in ("Growing", "Resized")] == [
        "Growing",
        "Resized",
    ]
    condition = degraded(world, key)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "WholeGang")


def test_without_a_checkpoint_it_grows_at_the_deadline() -> None:
    world, key = small()
    world.add_nodes("n8", "n9")
    later(world, key, GROW)
    later(world, key, ROOM)
    later(world, key, 20 + 120 - 1)
    assert world.job(key).attempt == 1
    later(world, key, 1)
    assert (world.job(key).attempt, world.job(key).ready) == (2, "4/4")


def test_it_does_not_grow_before_it_has_run_for_a_while() -> None:
    world, key = small()
    world.add_nodes("n8", "n9")
    later(world, key, GROW - 10)
    later(world, key, 5)
    assert (world.job(key).growth, len(world.workloads)) == (None, 1)


def test_room_that_comes_and_goes_changes_nothing() -> None:
    world, key = small()
    later(world, key, GROW)
    for _ in range(5):
        world.add_nodes("n8", "n9")
        later(world, key, ROOM - 1)
        assert len(world.workloads) == 1, "nobody is asked yet"
        del world.nodes["n8"], world.nodes["n9"]
        later(world, key, 1)
        assert world.job(key).growth is None
    assert (world.job(key).attempt, world.job(key).ready) == (1, "2/2")


def test_kueue_is_asked_and_nothing_is_touched_until_it_has_quota() -> None:
    world, key = small(quota=2, nodes=4)
    later(world, key, GROW)
    later(world, key, ROOM)
    first = world.workload(key).name
    assert sorted(workloads(world, key).values()) == [(False, True), (True, False)]
    for _ in range(20):
        later(world, key, 300)
    assert (world.job(key).attempt, world.workload(key).name) == (1, first)
    world.quota = 3
    later(world, key, 1)
    assert world.job(key).attempt == 1
    saves(world, key, 140)
    assert (world.job(key).attempt, world.job(key).ready, world.used()) == (2, "3/3", 3)
    assert list(workloads(world, key).values()) == [(True, True)]


def test_a_workload_that_is_seen_replaced_too_early_stops_nobody() -> None:
    """Its end may be read before the admission of the one that has taken over."""
    world, key = small(quota=2, nodes=4)
    later(world, key, GROW)
    later(world, key, ROOM)
    first = world.workload(key)
    over = WorkloadCondition(True, "WorkloadSliceReplaced", "replaced", world.now)
    world.workloads[first.name] = replace(first, finished=over)
    for _ in range(3):
        world.step(key)
    assert (world.job(key).attempt, world.job(key).ready) == (1, "2/2")
    world.workloads[first.name] = replace(first, finished=replace(over, reason="Succeeded"))
    world.step(key)
    assert world.job(key).placement is None, "an end of any other kind is one"


def test_room_that_goes_while_kueue_is_asked_takes_the_question_back() -> None:
    world, key = small(quota=2, nodes=4)
    later(world, key, GROW)
    later(world, key, ROOM)
    for name in set(world.nodes) - {pod.node for pod in world.pods_of(key)}:
        del world.nodes[name]
    later(world, key, 1)
    assert list(workloads(world, key).values()) == [(True, False)]
    assert world.job(key).growth is None


def test_room_that_goes_when_there_is_quota_gives_that_back() -> None:
    world, key = small(nodes=2)
    world.add_nodes("n8", "n9")
    later(world, key, GROW)
    later(world, key, ROOM)
    assert world.used() == 4
    del world.nodes["n8"], world.nodes["n9"]
    later(world, key, 1)
    assert (world.job(key).attempt, world.job(key).ready, world.used()) == (1, "2/2", 2)
    world.add_nodes("n7")
    later(world, key, 1)
    later(world, key, ROOM)
    saves(world, key, 200)
    assert (world.job(key).ready, world.used()) == ("3/3", 3)


def test_it_grows_so_often_in_an_hour_and_no_more() -> None:
    world, key = small()
    grown = 0
    for _ in range(12):
        world.add_nodes("n8", "n9")
        later(world, key, GROW / 4)
        later(world, key, GROW / 4)
        later(world, key, ROOM)
        saves(world, key, 100)
        if world.job(key).attempts[-1:] and world.job(key).ready == "4/4":
            grown += 1
            del world.nodes["n8"], world.nodes["n9"]
            later(world, key, 1)
            later(world, key, SHRINK)
            saves(world, key, 100)
    times = [
        parse_time(each.ended_at)
        for each in world.job(key).attempts
        if each.outcome is Outcome.RESIZED
    ]
    assert len(times) > 3
    assert all(later - first >= 3600 for first, later in zip(times, times[3:], strict=False))


@pytest.mark.parametrize("when", ["asked", "granted"])
@pytest.mark.parametrize("what", ["node", "evict", "suspend", "crash"])
def test_what_ends_the_attempt_ends_its_growth_and_leaves_one_workload(
    what: str, when: str
) -> None:
    world, key = small(quota=2, nodes=4)
    later(world, key, GROW)
    later(world, key, ROOM)
    if when == "granted":
        world.quota = 4
        later(world, key, 1)
    assert world.job(key).attempt == 1
    assert world.job(key).growth is not None
    if what == "node":
        world.lose(str(world.pods_of(key)[0].node))
    elif what == "evict":
        world.evict(key, "Preempted")
    elif what == "suspend":
        world.edit(key, suspend=True)
        world.run(key)
        assert (world.used(), world.job(key).phase) == (0, Phase.SUSPENDED)
        world.edit(key, suspend=False)
    else:
        world.exit(world.pods_of(key)[0].name, 1)
    world.run(key)
    for _ in range(4):
        later(world, key, 20)
    status = world.job(key)
    assert (status.phase, status.growth) == (Phase.RUNNING, None)
    assert len(workloads(world, key)) == 1
    assert world.used() == len(world.pods_of(key))
    assert status.attempt == 2


def test_our_check_is_answered_for_the_larger_gang() -> None:
    world = World(our_check=True)
    world.add_nodes("n0", "n1")
    key = world.submit(spec=job_spec(4, least=2))
    world.run(key)
    later(world, key, SHRINK)
    world.add_nodes("n8", "n9")
    later(world, key, GROW)
    later(world, key, ROOM)
    assert (world.job(key).attempt, world.job(key).ready, world.used()) == (2, "4/4", 4)
