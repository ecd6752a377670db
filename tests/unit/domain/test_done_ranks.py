"""A rank that has succeeded has done its part, whatever becomes of its pod or its node."""

from dataclasses import replace

import pytest

from goodput_operator.api.status import Phase, Restarts
from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import World, job_spec

FIRST = "job-a1-worker-0"


@pytest.fixture
def world() -> World:
    made = World()
    made.add_nodes("n1", "n2", "n3")
    return made


@pytest.fixture
def job(world: World) -> JobKey:
    """A gang of three of which the first rank has succeeded, and that was seen."""
    key = world.submit(spec=job_spec(3))
    world.run(key)
    world.exit(FIRST, 0)
    world.run(key)
    return key


def remove(world: World) -> None:
    del world.pods[FIRST]


def remove_with_its_node(world: World) -> None:
    del world.nodes[world.pods.pop(FIRST).node or ""]


def remove_with_grace(world: World) -> None:
    world.pods[FIRST] = replace(world.pods[FIRST], deleting=True)


def lose_its_node(world: World) -> None:
    world.lose(world.pods[FIRST].node or "")


@pytest.mark.parametrize("how", [remove, remove_with_its_node, remove_with_grace, lose_its_node])
def test_it_is_not_done_again(world: World, job: JobKey, how) -> None:
    how(world)
    world.run(job)
    status = world.job(job)
    assert (status.phase, status.ready, status.attempt) == (Phase.RUNNING, "3/3", 1)
    assert status.restarts == Restarts()
    world.exit("job-a1-worker-1", 0)
    world.run(job)
    del world.pods["job-a1-worker-1"]
    world.exit("job-a1-worker-2", 0)
    world.run(job)
    assert (world.job(job).phase, world.job(job).ready) == (Phase.COMPLETE, "3/3")


def test_the_others_can_still_fail_and_then_all_start_anew(world: World, job: JobKey) -> None:
    remove(world)
    world.run(job)
    world.exit("job-a1-worker-1", 1)
    world.run(job)
    world.now += 10
    world.run(job)
    status = world.job(job)
    assert (status.phase, status.ready, status.attempt) == (Phase.RUNNING, "3/3", 2)
    assert len(world.pods_of(job)) == 3
    assert status.restarts.crash == 1


def test_a_lost_node_names_the_ranks_that_had_not_succeeded(world: World) -> None:
    world.add_nodes("big", gpus=2)
    key = world.submit(spec=job_spec(2))
    world.run(key)
    assert {pod.node for pod in world.pods_of(key)} == {"big"}
    world.exit(FIRST, 0)
    world.run(key)
    world.lose("big")
    world.run(key)
    assert "lost rank worker-1" in world.job(key).attempts[-1].message


def test_a_note_that_somebody_has_spoilt_is_a_condition_and_no_bug(
    world: World, job: JobKey
) -> None:
    status = world.job(job)
    placement = status.placement
    assert placement is not None
    roles = tuple(role.model_copy(update={"succeeded": "all"}) for role in placement.roles)
    spoilt = placement.model_copy(update={"roles": roles})
    world.jobs[job] = replace(
        world.jobs[job], status=status.model_copy(update={"placement": spoilt})
    )
    world.run(job)
    assert "cannot be read" in world.job(job).attempts[-1].message
    assert world.job(job).attempt == 2
