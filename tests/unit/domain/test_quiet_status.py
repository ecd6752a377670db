"""A job that waits is not written whenever other jobs come and go."""

from goodput_operator.domain.resources import Resources
from tests.unit.domain.world import GPU, World, job_spec


def message(world: World, key) -> str:
    return next(each.message for each in world.job(key).conditions if each.type == "Running")


def test_others_that_come_and_go_cost_a_waiting_job_no_write() -> None:
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(10)))
    waiting = world.submit("waiting", job_spec(replicas=20))
    world.run(waiting)
    assert world.job(waiting).reason == "WaitingForNodes"
    told, before = message(world, waiting), world.job(waiting)
    for i in range(8):
        other = world.submit(f"other-{i}", job_spec())
        world.run(other)
        world.writes.clear()
        world.run(waiting)
        assert world.writes == []
        if i % 2:
            world.finish(other)
            world.run(other)
    assert world.job(waiting) == before
    world.now += world.policy.hold_seconds + 1
    world.run(waiting)
    assert message(world, waiting) != told, "what it gives its quota back for is what is so now"


def test_another_reason_is_told_at_once() -> None:
    world = World()
    world.add_nodes("n1")
    key = world.submit(spec=job_spec(replicas=2))
    world.run(key)
    told = message(world, key)
    world.foreign["n1"] = Resources.parse({GPU: 1})
    world.run(key)
    assert message(world, key) == told
    world.foreign.clear()
    world.add_nodes("n2")
    world.run(key)
    assert world.job(key).reason == "AllRanksReady"
