"""Gangs whose ranks all run and make no step: when that is a hang, and what a hang costs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator import constants as c
from goodput_operator.api.status import Condition, Outcome, Phase, Restarts
from goodput_operator.domain.conditions import find
from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import World, job_spec

TIMEOUT = 300
FIRST = 1800


def running(replicas: int = 3, steps: int | None = 10, **tolerance: object) -> tuple[World, JobKey]:
    """A gang all of whose ranks run, and have just reported this step, the first being 0."""
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(replicas)))
    world.listen()
    fault_tolerance = {"progressTimeoutSeconds": TIMEOUT, **tolerance}
    key = world.submit(spec=job_spec(replicas=replicas, faultTolerance=fault_tolerance))
    world.run(key)
    if steps is not None:
        train(world, key, steps)
    return world, key


def train(world: World, key: JobKey, step: int, after: float = 0.0) -> None:
    """All ranks reach a step; what they began with is reported first."""
    ranks = world.job(key).replicas or 0
    world.step_to(key, *[0] * ranks)
    world.now += after
    world.step_to(key, *[step] * ranks)
    world.run(key)


def wait(world: World, key: JobKey, seconds: float) -> None:
    world.now += seconds
    world.run(key)


def stalled(world: World, key: JobKey) -> Condition | None:
    return find(world.job(key).conditions, c.ConditionType.STALLED)


def test_a_gang_that_makes_no_step_for_too_long_restarts_as_hung() -> None:
    world, key = running()
    wait(world, key, TIMEOUT - 1)
    assert world.job(key).attempt == 1
    wait(world, key, 1)
    status = world.job(key)
    assert (status.attempt, status.phase) == (2, Phase.RUNNING)
    assert status.restarts == Restarts(hang=1) == status.charged
    record = status.attempts[-1]
    assert record.outcome is Outcome.HUNG
    assert record.failed_at is not None
    assert record.failed_at < record.ended_at
    assert "RanksHung" in world.reasons(key)


def test_the_operator_looks_again_when_a_hang_would_be_due() -> None:
    world, key = running()
    wait(world, key, 100)
    plan = world.step(key)
    assert plan.requeue_after == pytest.approx(TIMEOUT - 100, abs=1)


def test_the_evidence_is_in_event_record_and_condition_and_names_who_is_behind() -> None:
    world, key = running()
    world.now += 10
    world.step_to(key, 12, 11, 12)
    wait(world, key, TIMEOUT)
    message = world.job(key).attempts[-1].message
    assert "no new step for 300 s, the spec.faultTolerance.progressTimeoutSeconds" in message
    assert "last step 12 at 1970-01-12T13:46:50Z" in message
    node = world.nodes.keys() - {pod.node for pod in world.pods_of(key) if pod.rank != 1}
    assert f"furthest behind rank worker-1 on node {node.pop()}: step 11 at" in message
    hung = [event.message for _, event in world.events if event.reason == "RanksHung"]
    condition = stalled(world, key)
    assert condition is not None
    assert hung == [condition.message] == [message]


@pytest.mark.parametrize("replicas", [3, 200])
def test_the_evidence_stays_short_however_large_the_gang(replicas: int) -> None:
    world, key = running(replicas=replicas, steps=None)
    world.step_to(key, 5)
    wait(world, key, FIRST)
    message = world.job(key).attempts[-1].message
    assert "nothing heard since" in message
    assert f"and {replicas - 4} more" in message or replicas == 3
    assert len(message) < 600


def test_it_is_stalled_until_a_new_step_is_made() -> None:
    world, key = running()
    assert stalled(world, key) is None
    wait(world, key, TIMEOUT)
    found = stalled(world, key)
    assert found is not None
    assert (found.status, found.reason) == ("True", "NoProgress")
    train(world, key, 11, after=60)
    found = stalled(world, key)
    assert found is not None
    assert (found.status, found.reason) == ("False", "Progressing")


def test_a_job_that_is_complete_is_not_stalled() -> None:
    world, key = running(steps=None)
    wait(world, key, FIRST)
    world.finish(key)
    world.run(key)
    found = stalled(world, key)
    assert found is not None
    assert (world.job(key).phase, found.status) == (Phase.COMPLETE, "False")


def test_without_a_timeout_nothing_is_a_hang() -> None:
    world, key = running(progressTimeoutSeconds=None)
    wait(world, key, 10 * 86_400)
    assert world.job(key).attempt == 1
    assert world.step(key).requeue_after is None


@pytest.mark.parametrize("reports", [True, False], ids=["reports step 0", "reports nothing"])
def test_a_slow_first_step_has_a_limit_of_its_own(reports: bool) -> None:
    world, key = running(steps=None)
    if reports:
        world.step_to(key, 0, 0, 0)
    wait(world, key, FIRST - 1)
    assert world.job(key).attempt == 1
    wait(world, key, 1)
    assert world.job(key).restarts == Restarts(hang=1)
    assert "no first step for 1800 s" in world.job(key).attempts[-1].message


def test_after_a_restart_the_first_step_may_be_slow_again() -> None:
    world, key = running()
    wait(world, key, TIMEOUT)
    world.step_to(key, 10, 10, 10)
    wait(world, key, FIRST - 1)
    assert world.job(key).attempt == 2


@pytest.mark.parametrize("quiet", [1, TIMEOUT - 1, TIMEOUT + 1, 10 * TIMEOUT])
def test_a_restart_of_the_operator_is_no_hang(quiet: float) -> None:
    world, key = running()
    world.report(key, step=10, durable=0)
    world.now += quiet
    world.listen()
    world.run(key)
    wait(world, key, TIMEOUT - 1)
    assert world.job(key).attempt == 1
    wait(world, key, 1)
    assert world.job(key).attempt == 2


def test_without_an_endpoint_nobody_can_tell() -> None:
    world, key = running()
    world.heard = None
    wait(world, key, 10 * FIRST)
    assert world.job(key).attempt == 1


def test_most_of_the_cluster_silent_is_no_hang() -> None:
    world, key = running(replicas=3)
    for name in list(world.nodes):
        world.lose(name)
    wait(world, key, TIMEOUT - 50)
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, ready=True, ready_since=world.now)
    wait(world, key, 100)
    assert world.job(key).restarts.hang == 0


@pytest.mark.parametrize("phase", ["Pending", "Unknown"])
def test_a_rank_that_does_not_run_is_no_hang(phase: str) -> None:
    world, key = running()
    pod = world.pods["job-a1-worker-1"]
    world.pods[pod.name] = replace(pod, phase=phase, ready=False)
    wait(world, key, 2 * FIRST)
    assert world.job(key).restarts.hang == 0


def test_a_rank_whose_probe_fails_hangs_with_the_others() -> None:
    world, key = running()
    pod = world.pods["job-a1-worker-1"]
    world.pods[pod.name] = replace(pod, ready=False)
    wait(world, key, TIMEOUT)
    assert world.job(key).restarts == Restarts(hang=1)


def test_ranks_that_were_replaced_may_take_their_time_for_the_first_step() -> None:
    world, key = running(replicas=3, restartScope="Failed")
    world.add_nodes("spare")
    world.now += 5
    world.lose(next(pod.node or "" for pod in world.pods_of(key) if pod.rank == 2))
    world.run(key)
    assert world.job(key).attempt == 1
    wait(world, key, TIMEOUT + 10)
    assert world.job(key).restarts.hang == 0
    wait(world, key, FIRST)
    assert world.job(key).restarts.hang == 1


def hang(world: World, key: JobKey, step: int | None) -> None:
    if step is not None:
        train(world, key, step, after=5)
    wait(world, key, FIRST)


def test_hangs_without_new_steps_fail_the_job() -> None:
    world, key = running(steps=None, maxHangRestarts=2)
    for step in (10, 10, None):
        assert world.job(key).phase is Phase.RUNNING
        hang(world, key, step)
    status = world.job(key)
    failed = find(status.conditions, c.ConditionType.FAILED)
    assert failed is not None
    assert (status.phase, failed.reason) == (Phase.FAILED, "HangBudgetExhausted")
    assert "spec.faultTolerance.maxHangRestarts of 2 is used up: no first step" in failed.message
    found = stalled(world, key)
    assert found is not None
    assert found.status == "True"


def test_a_new_highest_step_forgives_the_hangs_before() -> None:
    world, key = running(steps=None, maxHangRestarts=2)
    for step in (10, 11, 12, 12, 13, 13):
        hang(world, key, step)
        assert world.job(key).phase is Phase.RUNNING
    assert world.job(key).restarts == Restarts(hang=6)
    assert world.job(key).charged == Restarts(hang=2)
    hang(world, key, 13)
    assert world.job(key).phase is Phase.FAILED


def test_the_steps_of_old_attempts_are_remembered_beyond_the_records() -> None:
    world, key = running(steps=None, maxHangRestarts=14)
    hang(world, key, 50)
    for _ in range(13):
        hang(world, key, 40)
    hang(world, key, 50)
    assert world.job(key).phase is Phase.FAILED


def test_a_job_that_never_reports_is_not_forgiven_for_hanging_long() -> None:
    world, key = running(
        steps=None, maxHangRestarts=1, firstStepTimeoutSeconds=7200, forgiveAfterSeconds=3600
    )
    for _ in range(2):
        wait(world, key, 7200)
    assert world.job(key).phase is Phase.FAILED


def test_a_hang_leaves_all_other_budgets_untouched() -> None:
    world, key = running(maxCrashRestarts=0, maxInfrastructureRestarts=0, maxPreemptionRestarts=0)
    wait(world, key, TIMEOUT)
    status = world.job(key)
    assert status.phase is Phase.RUNNING
    assert status.charged == Restarts(hang=1)


@pytest.mark.parametrize(
    ("steps", "blamed"),
    [
        ((10, 9, 10), True),
        ((10, 10, 10), False),
        ((10, 9, 9), False),
        ((10, 9), False),
    ],
    ids=["one behind", "none behind", "most behind", "one silent"],
)
def test_a_node_is_suspected_only_if_its_ranks_alone_are_behind(
    steps: tuple[int, ...], blamed: bool
) -> None:
    world, key = running(steps=None)
    world.step_to(key, *[0] * len(steps))
    world.now += 5
    world.step_to(key, *steps)
    node = world.pods["job-a1-worker-1"].node
    wait(world, key, TIMEOUT)
    blame = world.job(key).attempts[-1].blame
    assert (blame is not None and blame.nodes == (node,)) is blamed


def test_nobody_is_suspected_before_all_had_the_time_to_report() -> None:
    world, key = running(steps=None, progressTimeoutSeconds=40)
    world.step_to(key, 0, 0, 0)
    world.now += 5
    world.step_to(key, 10, 9, 10)
    wait(world, key, 40)
    assert world.job(key).attempts[-1].blame is None


@given(
    gaps=st.lists(st.floats(0, TIMEOUT - 1), min_size=1, max_size=12),
    forgets=st.sets(st.integers(0, 11)),
)
def test_a_gang_that_makes_steps_in_time_never_hangs(gaps: list[float], forgets: set[int]) -> None:
    """Whatever the ranks say in between, and whenever the operator restarts."""
    world, key = running()
    for index, gap in enumerate(gaps):
        wait(world, key, gap)
        if index in forgets:
            world.listen()
        world.step_to(key, 10, 11 + index)
        world.report(key, step=11 + index, durable=0)
        world.run(key)
    assert world.job(key).attempt == 1
