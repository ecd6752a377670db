"""Quota that is held for nothing, how it is given back, and what is said while that fails."""

from dataclasses import replace

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import Outcome, Phase
from goodput_operator.domain import plan as p
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import JobKey, Refusal
from goodput_operator.domain.quota import held_seconds
from goodput_operator.domain.reconcile import decide
from tests.unit.domain.world import World, job_spec

AWAY = Refusal("create pods: failed calling webhook", c.Reason.WEBHOOK_FAILING, transient=True)
FORBIDDEN = Refusal("create pods: forbidden")


@pytest.fixture
def world() -> World:
    made = World()
    made.add_nodes("n1", "n2")
    return made


def running(world: World, **spec: object) -> JobKey:
    key = world.submit(spec=job_spec(**spec))  # type: ignore[arg-type]
    world.run(key)
    assert world.job(key).phase is Phase.RUNNING
    return key


def seconds_held(world: World, key: JobKey) -> float | None:
    job = world.jobs[key]
    assert job.spec is not None
    return held_seconds(Context(job, job.spec, world.snapshot(), world.now, world.policy))


def evicted_without_pods(world: World, key: JobKey, reason: str = "Preempted") -> None:
    """As an operator finds it that was away meanwhile."""
    world.evict(key, reason)
    world.pods.clear()
    world.now += 60
    world.step(key)  # The end of the attempt is recorded.


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", True),
        ("NodeFailures", True),
        ("FlavorMigration", True),
        ("SaidSomebodyElse", True),
        ("AdmissionCheck", False),
        ("ClusterQueueStopped", False),
        ("Deactivated", False),
        ("LocalQueueStopped", False),
        ("PodsReadyTimeout", False),
    ],
)
def test_what_kueue_would_not_queue_again_is_queued_again(
    world: World, reason: str, requeued: bool
) -> None:
    key = running(world)
    evicted_without_pods(world, key, reason)
    (release,) = world.step(key).actions
    assert isinstance(release, p.ReleaseQuota)
    assert release.requeued is requeued


def test_quota_held_for_nothing_is_told_and_released_once(world: World) -> None:
    key = running(world)
    assert seconds_held(world, key) is None
    evicted_without_pods(world, key)
    assert seconds_held(world, key) == 60
    world.errors[key] = AWAY
    plan = decide(world.snapshot(), key, world.now, world.policy)
    assert plan.status is not None
    assert (plan.status.phase, plan.status.reason) == (Phase.STOPPING, c.Reason.QUOTA_HELD)
    message = plan.status.conditions[-1].message
    assert "is evicted and no pod is left, but its quota is still held" in message
    assert AWAY.message in message
    before = len(world.writes)
    world.run(key)
    assert world.writes[before:].count("ReleaseQuota") == 1
    assert world.job(key).phase is Phase.RUNNING
    assert seconds_held(world, key) is None


def test_quota_of_a_job_that_is_over_is_held_until_its_workload_is_finished(world: World) -> None:
    key = running(world)
    world.finish(key)
    world.step(key)
    world.now += 5
    assert world.job(key).phase is Phase.COMPLETE
    assert seconds_held(world, key) == pytest.approx(5, abs=1)
    world.run(key)
    assert seconds_held(world, key) is None


def test_pods_that_still_stop_hold_quota_for_something(world: World) -> None:
    key = running(world)
    world.evict(key, "Preempted")
    world.step(key)
    assert seconds_held(world, key) is None


def test_an_eviction_is_answered_while_a_crash_waits_for_its_explanation(world: World) -> None:
    key = running(world, faultTolerance={"maxCrashRestarts": 0})
    world.exit(world.pods_of(key)[0].name, 1)
    world.run(key)
    assert world.job(key).reason == c.Reason.CRASH_BUDGET_EXHAUSTED
    world.quota = 0
    world.evict(key, "Preempted")
    world.run(key)
    assert world.used() == 0
    assert world.job(key).reason == c.Reason.CRASH_BUDGET_EXHAUSTED


# Admitted, but the pods cannot be made


def placed(world: World, refusal: Refusal, seconds: float) -> tuple[JobKey, p.Plan]:
    """A gang that was placed and admitted so long ago, and whose pods are refused."""
    key = world.submit()
    while world.job(key).placement is None or not world.workload(key).is_admitted:
        world.step(key)
        world.play()
    world.errors[key] = refusal
    world.now += seconds
    return key, decide(world.snapshot(), key, world.now, world.policy)


def test_a_gang_keeps_its_place_while_nobody_answers(world: World) -> None:
    key, plan = placed(world, AWAY, 3600)
    assert not plan.commit
    assert any(isinstance(action, p.CreatePod) for action in plan.actions)
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 1)


def test_a_gang_that_is_refused_is_withdrawn(world: World) -> None:
    _, plan = placed(world, FORBIDDEN, 61)
    assert plan.commit
    assert plan.status is not None
    assert plan.status.attempts[-1].outcome is Outcome.UNSCHEDULABLE


def test_half_a_gang_is_withdrawn_though_nobody_answers(world: World) -> None:
    key, plan = placed(world, AWAY, 1)
    create = next(each for each in plan.actions if isinstance(each, p.CreatePod))
    world.execute(key, p.Plan(actions=(create,)))
    world.play()  # It is bound, and runs.
    world.errors[key] = AWAY
    world.now += 60
    assert decide(world.snapshot(), key, world.now, world.policy).commit


@pytest.mark.parametrize(("seconds", "told"), [(29, 0), (31, 1)])
def test_case_11_admitted_without_pods_for_long_is_an_event(
    world: World, seconds: float, told: int
) -> None:
    _, plan = placed(world, FORBIDDEN, seconds)
    assert [event.reason for event in plan.events] == [c.EventReason.NOT_STARTED] * told
    assert all("0 of 2 pods exist" in event.message for event in plan.events)


# What Kueue cannot be told


@pytest.mark.parametrize("ready", [True, False])
def test_how_ranks_are_is_shown_though_kueue_cannot_be_told(world: World, ready: bool) -> None:
    key = running(world)
    workload = world.workload(key)
    assert workload.pods_ready is not None
    world.workloads[workload.name] = replace(
        workload, pods_ready=replace(workload.pods_ready, status=not ready)
    )
    if not ready:
        pod = world.pods_of(key)[0]
        world.pods[pod.name] = replace(pod, ready=False)
    world.errors[key] = AWAY
    plan = decide(world.snapshot(), key, world.now, world.policy)
    assert plan.status is not None
    expected = c.Reason.ALL_RANKS_READY if ready else c.Reason.RANKS_NOT_READY
    assert plan.status.reason == expected
    assert any(AWAY.message in each.message for each in plan.status.conditions)
    assert [type(action) for action in plan.actions] == [p.SetPodsReady]
