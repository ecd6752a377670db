"""Where the time between a failure and the first new step went."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.status import Cause, Progress
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import World

STAGES = ("detect", "wait", "place", "create", "bind", "start")


def running() -> tuple[World, JobKey]:
    world = World()
    world.add_nodes("n1", "n2", "n3", "n4")
    key = world.submit()
    world.run(key)
    return world, key


def step_once(world: World, key: JobKey, seconds: float) -> None:
    """Time passes, and the operator looks once."""
    world.now += seconds
    world.step(key)


def first_step(world: World, key: JobKey, attempt: int, after: float) -> None:
    job = world.jobs[key]
    now = format_micro_time(world.now + after)
    progress = Progress(attempt=attempt, step=1, reported_at=now, first_step_at=now)
    world.jobs[key] = replace(job, status=job.status.model_copy(update={"progress": progress}))


def test_each_stage_has_the_time_that_passed_in_it() -> None:
    world, key = running()
    first_step(world, key, 1, 0)
    world.bind = False
    world.lose(world.pods_of(key)[0].node)
    world.policy = replace(world.policy, settle_seconds=0.0)
    step_once(world, key, 4)  # seen
    step_once(world, key, 2)  # placed
    step_once(world, key, 1)  # created
    assert world.job(key).recovery is None
    for pod in world.pods_of(key):
        world.pods[pod.name] = replace(pod, node=pod.pinned_node)
    step_once(world, key, 3)  # bound
    for pod in world.pods_of(key):
        world.pods[pod.name] = replace(pod, phase="Running", ready=True)
    step_once(world, key, 5)  # all ready
    assert world.job(key).recovery is None
    first_step(world, key, 2, 7)
    step_once(world, key, 8)
    found = world.job(key).recovery
    assert (found.attempt, found.cause) == (2, Cause.INFRASTRUCTURE)
    assert [getattr(found, stage) for stage in STAGES] == [4, 0, 2, 1, 3, 5]
    assert (found.restore, found.total) == (7, 22)


def test_a_job_that_reports_nothing_has_recovered_once_it_runs() -> None:
    world, key = running()
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    world.now += 2
    world.run(key)
    found = world.job(key).recovery
    assert (found.attempt, found.restore) == (2, None)


def test_the_backoff_of_a_crash_is_a_stage_of_its_own() -> None:
    world, key = running()
    world.exit("job-a1-worker-1", 7)
    world.now += 3
    world.run(key)
    world.now += 10
    world.run(key)
    found = world.job(key).recovery
    assert (found.cause, found.detect, found.wait) == (Cause.CRASH, 3, 10)


def test_a_suspension_is_no_recovery() -> None:
    world, key = running()
    world.edit(key, suspend=True)
    world.run(key)
    world.edit(key, suspend=False)
    world.run(key)
    assert world.job(key).attempt == 2
    assert world.job(key).recovery is None


def test_it_is_told_once_and_then_stays() -> None:
    world, key = running()
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    world.now += 2
    world.run(key)
    found = world.job(key).recovery
    world.now += 100
    world.run(key)
    assert world.job(key).recovery == found


@given(
    exit_after=st.floats(-50, 50),
    reported=st.floats(-50, 50),
    wait=st.floats(0, 30),
)
def test_no_stage_is_negative_and_they_add_up_whatever_the_clocks_say(
    exit_after: float, reported: float, wait: float
) -> None:
    world, key = running()
    pod = world.pods["job-a1-worker-1"]
    world.exit(pod.name, 7)
    failed = world.pods[pod.name]
    exits = tuple(replace(each, finished_at=world.now + exit_after) for each in failed.exits)
    world.pods[pod.name] = replace(failed, exits=exits)
    world.now += wait
    world.run(key)
    world.now += 60
    first_step(world, key, 2, reported)
    world.run(key)
    found = world.job(key).recovery
    parts = [getattr(found, stage) for stage in STAGES] + [found.restore or 0.0]
    assert min(parts) >= 0
    assert abs(sum(parts) - found.total) < 0.01
