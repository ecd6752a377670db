"""What a user edits while a change is under way, told step by step."""

from dataclasses import replace

import pytest

from goodput_operator import constants as c
from goodput_operator.api.spec import Framework
from goodput_operator.api.status import Cause, Outcome, Phase, TrainingJobStatus
from goodput_operator.domain.model import JobKey, Refusal
from goodput_operator.domain.names import workload_name
from goodput_operator.domain.plan import CreatePod
from tests.unit.domain.world import World, job_spec


@pytest.fixture
def world() -> World:
    made = World()
    made.add_nodes("n1", "n2", "n3")
    return made


def running(world: World, **spec: object) -> JobKey:
    key = world.submit(spec=job_spec(**spec))  # type: ignore[arg-type]
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    return key


def restarted(world: World, key: JobKey) -> None:
    """The job runs anew, and that counts against nothing."""
    status = world.job(key)
    assert (status.phase, status.attempt) == (Phase.RUNNING, 2)
    assert status.attempts[0].outcome is Outcome.EVICTED
    assert "no longer describes" in status.attempts[0].message
    assert status.restarts.crash + status.restarts.infrastructure == 0
    assert len(world.workloads) == 1
    assert {pod.attempt for pod in world.pods.values()} == {2}


# Suspended, changed and resumed before anybody looked


def test_roles_changed_unseen_restart_the_gang_as_a_whole(world: World) -> None:
    key = running(world)
    world.edit(key, roles=job_spec(replicas=3).roles)
    world.run(key)
    restarted(world, key)
    assert world.job(key).ready == "3/3"


@pytest.mark.parametrize("field", ["framework", "checkpoint"])
def test_what_only_the_pods_show_restarts_the_gang_too(world: World, field: str) -> None:
    key = running(world)
    changed = job_spec(framework="JAX", checkpoint={"uri": "gs://bucket/here"})
    world.edit(key, **{field: getattr(changed, field)})
    world.run(key)
    restarted(world, key)


def test_a_gang_is_never_made_of_pods_of_two_specs(world: World) -> None:
    key = world.submit()
    world.refused[key] = "no"
    for _ in range(12):
        world.step(key)
        world.play()
    assert len(world.pods) == 1, "half of the gang is there"
    del world.refused[key]
    world.edit(key, framework=Framework.JAX)
    world.run(key)
    restarted(world, key)


def test_a_smaller_gang_is_not_complete_by_what_the_larger_has_done(world: World) -> None:
    key = running(world)
    world.exit(world.pods_of(key)[0].name, 0)
    world.edit(key, roles=job_spec(replicas=1).roles)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    assert world.job(key).attempt == 2


def test_other_fields_leave_the_workload_as_it_is(world: World) -> None:
    key = running(world)
    before = workload_name(world.jobs[key])
    world.edit(key, active_deadline_seconds=10_000, pod_retention="None", suspend=False)
    world.run(key)
    assert workload_name(world.jobs[key]) == before
    assert world.job(key).attempt == 1


# Budgets and deadlines


def test_a_budget_lowered_below_its_count_lets_the_attempt_go_on_to_its_end(world: World) -> None:
    key = running(world)
    world.exit(world.pods_of(key)[0].name, 3)
    world.run(key)
    world.now += 1000
    world.run(key)
    assert world.job(key).restarts.crash == 1
    tolerance = world.jobs[key].spec.fault_tolerance  # type: ignore[union-attr]
    world.edit(key, fault_tolerance=tolerance.model_copy(update={"max_crash_restarts": 0}))
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    world.evict(key, "Preempted")
    world.run(key)
    assert world.job(key).reason == c.Reason.CRASH_BUDGET_EXHAUSTED


def test_a_deadline_moved_into_the_past_ends_the_job(world: World) -> None:
    key = running(world)
    world.now += 100
    world.edit(key, active_deadline_seconds=50)
    world.run(key)
    assert world.job(key).reason == c.Reason.DEADLINE_EXCEEDED


# What others do


def test_an_emptied_status_uses_no_attempt_number_twice(world: World) -> None:
    key = running(world)
    world.jobs[key] = replace(world.jobs[key], status=TrainingJobStatus())
    for _ in range(12):
        plan = world.step(key)
        assert all(each.attempt != 1 for each in plan.actions if isinstance(each, CreatePod))
        world.play()
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)


def test_a_pod_that_is_elsewhere_than_placed_is_lost_with_its_real_node(world: World) -> None:
    key = running(world)
    pod = world.pods_of(key)[0]
    spare = ({"n1", "n2", "n3"} - set(world.job(key).placement.nodes)).pop()  # type: ignore[union-attr]
    world.pods[pod.name] = replace(pod, node=spare)
    world.lose(spare)
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.attempts[0].cause) == (2, Cause.INFRASTRUCTURE)
    assert spare in status.attempts[0].lost_nodes


def test_in_a_terminating_namespace_nothing_is_done_and_the_job_says_so(world: World) -> None:
    key = running(world)
    world.errors[key] = Refusal("gone soon", c.Reason.NAMESPACE_TERMINATING, final=True)
    world.pods.clear()
    plan = world.step(key)
    assert plan.actions == ()
    status = world.job(key)
    assert status.reason == c.Reason.NAMESPACE_TERMINATING
    assert [e.message for e in status.conditions if e.type == "Running"] == ["gone soon"]
