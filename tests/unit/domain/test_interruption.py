"""The operator is killed before every single write of a story, and converges all the same."""

from collections.abc import Callable

import pytest

from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import Phase
from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import OperatorKilledError, World, job_spec

Story = Callable[[World, JobKey], None]


def start(world: World, key: JobKey) -> None:
    world.run(key)


def lose_a_node(world: World, key: JobKey) -> None:
    world.run(key)
    world.lose("n1")
    world.run(key)


def be_preempted(world: World, key: JobKey) -> None:
    world.run(key)
    world.evict(key, "Preempted")
    world.run(key)


def suspend_and_resume(world: World, key: JobKey) -> None:
    world.run(key)
    world.edit(key, suspend=True)
    world.run(key)
    world.edit(key, suspend=False)
    world.run(key)


def find_no_room(world: World, key: JobKey) -> None:
    world.run(key)
    world.lose("n1")
    world.lose("n3")
    world.run(key)
    world.now += 61
    world.run(key)
    world.now += 61
    world.add_nodes("n4")
    world.run(key)


def crash(world: World, key: JobKey) -> None:
    world.run(key)
    world.exit("job-a1-worker-0", 1)
    world.run(key)
    world.now += 10
    world.run(key)


def complete(world: World, key: JobKey) -> None:
    world.run(key)
    world.finish(key)
    world.run(key)


def be_admitted_in_part(world: World, key: JobKey) -> None:
    world.quota = 2
    world.run(key)


def shrink(world: World, key: JobKey) -> None:
    """From three ranks to two, for want of a node; the quota of the third goes back."""
    world.run(key)
    world.lose("n1")
    world.run(key)
    world.now += 31
    world.run(key)


def shrink_and_be_preempted(world: World, key: JobKey) -> None:
    shrink(world, key)
    world.add_nodes("n4")
    world.evict(key, "Preempted")
    world.run(key)
    world.now += 61  # The pod on the lost node counts as gone.
    world.run(key)


def ask_for_more(world: World, key: JobKey) -> None:
    """Two ranks run, for want of quota, and a second Workload asks for the third."""
    world.quota = 2
    world.run(key)
    world.now += 600
    world.run(key)
    world.now += 60
    world.run(key)


def grow(world: World, key: JobKey) -> None:
    """From two ranks to three: asked for, waited for, handed over, saved, restarted."""
    ask_for_more(world, key)
    world.now += 60
    world.quota = 3
    world.run(key)
    world.now += 1
    world.report(key, step=140, durable=140)
    world.run(key)


def be_preempted_while_it_asks_for_more(world: World, key: JobKey) -> None:
    ask_for_more(world, key)
    world.evict(key, "Preempted")
    world.run(key)


def new_world(our_check: bool, spec: TrainingJobSpec | None = None) -> tuple[World, JobKey]:
    world = World(our_check=our_check)
    world.add_nodes("n1", "n2", "n3")
    return world, world.submit(spec=spec or job_spec())


ELASTIC = (
    be_admitted_in_part,
    shrink,
    shrink_and_be_preempted,
    grow,
    be_preempted_while_it_asks_for_more,
)
"""Told of a job of three ranks that can run with two."""


@pytest.mark.parametrize("our_check", [False, True], ids=["plain queue", "our check"])
@pytest.mark.parametrize(
    "story",
    [
        start,
        lose_a_node,
        be_preempted,
        suspend_and_resume,
        find_no_room,
        crash,
        complete,
        be_admitted_in_part,
        shrink,
        shrink_and_be_preempted,
        grow,
        be_preempted_while_it_asks_for_more,
    ],
    ids=lambda story: story.__name__.replace("_", " "),
)
def test_killed_before_any_write_it_ends_in_the_same_state(story: Story, our_check: bool) -> None:
    spec = job_spec(3, least=2) if story in ELASTIC else job_spec()
    calm, key = new_world(our_check, spec)
    story(calm, key)
    assert len(calm.writes) > 3
    for gap in range(len(calm.writes)):
        world, key = new_world(our_check, spec)
        world.stop_after = gap
        original = world.step

        def step(key: JobKey, world: World = world, original: Callable = original):
            try:
                return original(key)
            except OperatorKilledError:
                world.stop_after = None  # a new operator starts where the old one was killed
                return original(key)

        world.step = step  # type: ignore[method-assign]
        story(world, key)
        told = f"killed before write {gap} ({calm.writes[gap]})"
        assert world.job(key).phase == calm.job(key).phase, told
        assert world.job(key).attempt == calm.job(key).attempt, told
        assert world.job(key).restarts == calm.job(key).restarts, told
        assert world.used() == calm.used(), told
        assert set(world.pods) == set(calm.pods), told
        assert world.job(key).ready == calm.job(key).ready, told
        assert len(world.workloads) == 1, told
        assert max(world.created.values()) == 1, told


def test_the_stories_end_where_they_should() -> None:
    for story, phase in ((start, Phase.RUNNING), (find_no_room, Phase.RUNNING)):
        world, key = new_world(False)
        story(world, key)
        assert world.job(key).phase == phase
    for story, ready in ((shrink, "2/2"), (shrink_and_be_preempted, "3/3"), (grow, "3/3")):
        world, key = new_world(False, job_spec(3, least=2))
        story(world, key)
        assert (world.job(key).phase, world.job(key).ready) == (Phase.RUNNING, ready)


def test_case_04_after_fifty_evictions_there_is_one_workload() -> None:
    world, key = new_world(our_check=False)
    world.run(key)
    for evictions in range(1, 51):
        world.evict(key, "Preempted")
        world.run(key)
        assert len(world.workloads) == 1
        assert world.job(key).restarts.preemption == evictions
    assert world.job(key).attempt == 51
    assert sum(world.created.values()) == 2 * 51, "case 10: gang size times attempts"
