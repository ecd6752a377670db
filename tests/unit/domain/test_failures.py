"""Causes, rules and budgets: every failure is told apart, and charged to its own."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.status import Cause, Phase, Progress, Restarts
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain.model import ContainerExit, JobKey, PodCondition
from tests.unit.domain.world import World, job_spec

RANK = "job-a1-worker-1"


def started(**tolerance: Any) -> tuple[World, JobKey]:
    world = World()
    world.add_nodes("n1", "n2", "n3", "n4")
    key = world.submit(spec=job_spec(faultTolerance=tolerance))
    world.run(key)
    return world, key


def fail(world: World, pod: str = RANK, **fields: Any) -> None:
    """The pod ends as ``fields`` say; exits as (code, reason)."""
    exits = tuple(
        ContainerExit("main", code, reason, "", world.now)
        for code, reason in fields.pop("exits", ())
    )
    view = replace(world.pods[pod], phase="Failed", ready=False, exits=exits, **fields)
    world.pods[pod] = view


def disrupted(reason: str) -> dict[str, Any]:
    condition = PodCondition("DisruptionTarget", "True", reason)
    return {"disruption": reason, "conditions": (condition,), "exits": [(143, "Error")]}


CAUSES = {
    "exit code": ({"exits": [(1, "Error")]}, Cause.CRASH),
    "out of its memory limit": ({"exits": [(137, "OOMKilled")]}, Cause.CRASH),
    "segmentation fault": ({"exits": [(139, "Error")]}, Cause.CRASH),
    "preempted by kube-scheduler": (disrupted("PreemptionByScheduler"), Cause.PREEMPTION),
    "preempted by a kubelet": (
        {**disrupted("TerminationByKubelet"), "status_reason": "Preempting"},
        Cause.PREEMPTION,
    ),
    "evicted by the API": (disrupted("EvictionByEvictionAPI"), Cause.INFRASTRUCTURE),
    "NoExecute taint": (disrupted("DeletionByTaintManager"), Cause.INFRASTRUCTURE),
    "pod garbage collector": (disrupted("DeletionByPodGC"), Cause.INFRASTRUCTURE),
    "node in distress": (
        {**disrupted("TerminationByKubelet"), "status_reason": "Evicted"},
        Cause.INFRASTRUCTURE,
    ),
    "beyond its storage limit": (
        {"exits": [(137, "Error")], "status_reason": "Evicted", "status_message": "over 1Gi"},
        Cause.CRASH,
    ),
    "its own deadline": ({"exits": [], "status_reason": "DeadlineExceeded"}, Cause.CRASH),
    "node shutdown": ({"exits": [], "status_reason": "NodeShutdown"}, Cause.INFRASTRUCTURE),
    "refused by the kubelet": ({"exits": [], "status_reason": "OutOfcpu"}, Cause.INFRASTRUCTURE),
    "end not seen": ({"exits": []}, Cause.INFRASTRUCTURE),
}


@pytest.mark.parametrize("case", CAUSES)
def test_what_ended_a_rank_is_told_by_its_marks(case: str) -> None:
    fields, cause = CAUSES[case]
    world, key = started()
    fail(world, **fields)
    world.run(key)
    status = world.job(key)
    assert status.attempts[-1].cause == cause, status.attempts[-1].message
    assert status.restarts == Restarts().plus(cause)
    assert status.charged == status.restarts
    assert "worker-1" in status.attempts[-1].message


def test_beyond_its_own_limit_the_kubelets_words_are_told() -> None:
    world, key = started()
    fail(world, exits=[], status_reason="Evicted", status_message="local storage over 1Gi")
    world.run(key)
    assert "Evicted: local storage over 1Gi" in world.job(key).attempts[-1].message


def rule(action: str, **marks: Any) -> dict[str, Any]:
    return {"action": action, **marks}


RULES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "exit code": (rule("Fail", exitCodes=[42]), {"exits": [(42, "Error")]}, True),
    "another exit code": (rule("Fail", exitCodes=[42]), {"exits": [(43, "Error")]}, False),
    "signal": (rule("Fail", signals=["SIGSEGV"]), {"exits": [(139, "Error")]}, True),
    "another signal": (rule("Fail", signals=["SIGSEGV"]), {"exits": [(134, "Error")]}, False),
    "reason": (rule("Fail", reasons=["OOMKilled"]), {"exits": [(137, "OOMKilled")]}, True),
    "killed, not out of memory": (
        rule("Fail", reasons=["OOMKilled"]),
        {"exits": [(137, "Error")]},
        False,
    ),
    "reason of the pod": (
        rule("Fail", reasons=["Evicted"]),
        {"exits": [(137, "Error")], "status_reason": "Evicted"},
        True,
    ),
    "pod condition": (
        rule("Fail", podConditions=[{"type": "DisruptionTarget"}]),
        disrupted("EvictionByEvictionAPI"),
        True,
    ),
    "reason of a pod condition": (
        rule("Fail", podConditions=[{"type": "DisruptionTarget", "reason": "DeletionByPodGC"}]),
        disrupted("EvictionByEvictionAPI"),
        False,
    ),
    "any one mark is enough": (
        rule("Fail", exitCodes=[42], reasons=["OOMKilled"]),
        {"exits": [(137, "OOMKilled")]},
        True,
    ),
    "its role": (rule("Fail", roles=["worker"], exitCodes=[42]), {"exits": [(42, "Error")]}, True),
    "another role": (
        rule("Fail", roles=["chief"], exitCodes=[42]),
        {"exits": [(42, "Error")]},
        False,
    ),
}


def settle(world: World, key: JobKey) -> None:
    """The failure is seen, then every node shows a sign of life: no lost node explains it."""
    world.run(key)
    world.now += 3
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, heartbeat_at=world.now)
    world.run(key)


@pytest.mark.parametrize("case", RULES)
def test_a_rule_matches_by_any_of_its_marks(case: str) -> None:
    given_rule, fields, matches = RULES[case]
    world, key = started(rules=[given_rule])
    fail(world, **fields)
    settle(world, key)
    status = world.job(key)
    assert (status.phase == Phase.FAILED) is matches
    if matches:
        assert status.reason == "FailureRule"
        message = next(each.message for each in status.conditions if each.type == "Failed")
        assert "worker-1" in message
        assert "spec.faultTolerance.rules[0]: Fail" in message


def test_the_first_rule_that_matches_wins() -> None:
    rules = [rule("RestartNotCounted", exitCodes=[42]), rule("Fail", exitCodes=[42, 43])]
    world, key = started(rules=rules)
    fail(world, exits=[(42, "Error")])
    settle(world, key)
    assert world.job(key).phase == Phase.RESTARTING
    assert world.job(key).attempts[-1].rule.index == 0


def test_what_is_not_counted_is_seen_and_charged_to_nothing() -> None:
    world, key = started(maxCrashRestarts=0, rules=[rule("RestartNotCounted", exitCodes=[42])])
    for attempt in range(1, 6):
        fail(world, f"job-a{attempt}-worker-1", exits=[(42, "Error")])
        settle(world, key)
        world.now += 300
        world.run(key)
        assert world.job(key).phase == Phase.RUNNING, world.job(key).reason
    status = world.job(key)
    assert (status.restarts.crash, status.charged.crash) == (5, 0)


def test_uncounted_restarts_in_a_row_back_off_all_the_same() -> None:
    world, key = started(rules=[rule("RestartNotCounted", exitCodes=[42])])
    waits = []
    for attempt in range(1, 5):
        fail(world, f"job-a{attempt}-worker-1", exits=[(42, "Error")])
        began = world.now
        while world.job(key).attempt == attempt or world.job(key).phase != Phase.RUNNING:
            world.run(key)
            world.now += 1
        waits.append(world.now - began)
    assert waits == sorted(waits)
    assert waits[-1] >= 2 * waits[0]


def test_a_lost_node_is_never_judged_by_a_rule() -> None:
    """Its peers' exit codes are not theirs, before the loss is known and after."""
    world, key = started(rules=[rule("Fail", exitCodes=[1])])
    dead = world.pods["job-a1-worker-0"].node
    fail(world, exits=[(1, "Error")])
    world.run(key)
    assert world.job(key).phase == Phase.RESTARTING
    world.now += 20
    world.lose(dead)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.restarts) == (Phase.RUNNING, Restarts(infrastructure=1))
    assert status.attempts[-1].rule is None


def test_of_ranks_that_fail_in_one_moment_the_marked_one_decides() -> None:
    """Kubelets tell whole seconds, so which was first is not known; a later one is collateral."""
    for later, phase in ((0.0, Phase.FAILED), (30.0, Phase.RESTARTING)):
        world, key = started(rules=[rule("Fail", exitCodes=[42])])
        fail(world, "job-a1-worker-0", exits=[(1, "Error")])
        world.now += later
        fail(world, "job-a1-worker-1", exits=[(42, "Error")])
        settle(world, key)
        assert world.job(key).phase == phase


def test_a_disruption_that_a_rule_names_can_fail_the_job() -> None:
    world, key = started(rules=[rule("Fail", podConditions=[{"type": "DisruptionTarget"}])])
    fail(world, **disrupted("PreemptionByScheduler"))
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.FAILED, "FailureRule")


def test_the_preemption_budget_ends_the_job_by_its_name() -> None:
    world, key = started(maxPreemptionRestarts=0)
    fail(world, **disrupted("PreemptionByScheduler"))
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.reason) == (Phase.FAILED, "PreemptionBudgetExhausted")
    message = next(each.message for each in status.conditions if each.type == "Failed")
    assert "spec.faultTolerance.maxPreemptionRestarts of 0 is used up" in message


def crash_after(world: World, key: JobKey, seconds: float) -> None:
    """The live attempt runs for so long and crashes; the next one runs, if there is one."""
    world.now += seconds
    fail(world, world.pods_of(key)[1].name, exits=[(1, "Error")])
    settle(world, key)
    world.now += 300
    world.run(key)


def test_an_attempt_that_trained_long_enough_clears_what_is_charged() -> None:
    world, key = started(maxCrashRestarts=1, forgiveAfterSeconds=3600)
    for _ in range(5):
        crash_after(world, key, 3601)
        assert world.job(key).phase == Phase.RUNNING
    assert (world.job(key).restarts.crash, world.job(key).charged.crash) == (5, 1)
    crash_after(world, key, 60)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.FAILED, "CrashBudgetExhausted")


def test_zero_never_forgives() -> None:
    world, key = started(maxCrashRestarts=1, forgiveAfterSeconds=0)
    crash_after(world, key, 10**7)
    crash_after(world, key, 10**7)
    assert world.job(key).phase == Phase.FAILED


def test_time_without_a_step_earns_no_forgiveness() -> None:
    """A job that reports steps has trained until its last one."""
    world, key = started(maxCrashRestarts=1, forgiveAfterSeconds=3600)
    crash_after(world, key, 60)
    job = world.jobs[key]
    now = format_micro_time(world.now + 60)
    stuck = Progress(attempt=2, step=3, reported_at=now, first_step_at=now)
    world.jobs[key] = replace(job, status=job.status.model_copy(update={"progress": stuck}))
    crash_after(world, key, 9000)
    assert world.job(key).phase == Phase.FAILED


ENDS = st.sampled_from(sorted(CAUSES))


@given(st.lists(ENDS, max_size=8))
def test_every_end_is_charged_to_its_own_cause_and_no_other(ends: list[str]) -> None:
    world, key = started(maxCrashRestarts=10_000)
    expected = Restarts()
    for end in ends:
        fields, cause = CAUSES[end]
        fail(world, world.pods_of(key)[1].name, **dict(fields))
        expected = expected.plus(cause)
        settle(world, key)
        for _ in range(20):
            world.now += 60
            world.run(key)
        assert world.job(key).phase == Phase.RUNNING
    assert world.job(key).restarts == expected
    assert world.job(key).charged == expected


def test_restarts_never_go_below_zero() -> None:
    assert Restarts().plus(Cause.CRASH, -1) == Restarts()
    assert Restarts(power_shed=2).of(Cause.POWER_SHED) == 2
    assert {Restarts().of(cause) for cause in Cause} == {0}
