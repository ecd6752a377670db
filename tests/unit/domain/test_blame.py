"""Which node a failure is put down to, and what that does to the next placements."""

from dataclasses import replace
from typing import Any

import pytest

from goodput_operator.api.node_health import FailureKind
from goodput_operator.api.status import Phase
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain import penalty
from goodput_operator.domain.model import ContainerExit, JobKey
from tests.unit.domain.test_penalty import failure, health
from tests.unit.domain.world import OperatorKilledError, World, job_spec

HOUR = 3600.0


def world_of(*nodes: str, replicas: int = 1, **spec: Any) -> tuple[World, JobKey]:
    world = World()
    world.add_nodes(*nodes)
    key = world.submit(spec=job_spec(replicas, **spec))
    world.run(key)
    return world, key


def host(world: World, key: JobKey, rank: int = 0) -> str:
    node = world.pods_of(key)[rank].node
    assert node is not None
    return node


def crash(world: World, key: JobKey, rank: int = 0, reason: str = "Error") -> str:
    """One rank fails; its node."""
    pod = world.pods_of(key)[rank]
    done = ContainerExit("main", 1, reason, "", world.now)
    world.pods[pod.name] = replace(pod, phase="Failed", ready=False, exits=(done,))
    node = host(world, key, rank)
    world.run(key)
    return node


def go_on(world: World, key: JobKey, seconds: float = 20) -> None:
    """Until the backoff is over and the next attempt runs."""
    world.now += seconds
    world.run(key)


def test_a_lost_node_is_blamed_once_it_is_known() -> None:
    world, key = world_of("n1", "n2", replicas=1)
    lost = host(world, key)
    world.lose(lost)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    status = world.health[lost].status
    assert status.failures == {"nodeLost": 1}
    assert status.last_failure.job == "team/job"
    assert world.job(key).attempts[-1].blame.counted


def test_nodes_that_are_lost_together_are_not_blamed() -> None:
    world, key = world_of(*(f"n{each}" for each in range(6)), replicas=3)
    for pod in world.pods_of(key):
        world.lose(pod.node)
    world.run(key)
    assert (world.job(key).attempt, world.health) == (2, {})


def test_a_node_that_was_deleted_is_not_blamed() -> None:
    world, key = world_of("n1", "n2")
    del world.nodes[host(world, key)]
    world.run(key)
    assert (world.job(key).attempt, world.health) == (2, {})


def test_a_node_whose_kubelet_refuses_pods_is_blamed() -> None:
    world, key = world_of("n1", "n2")
    pod = world.pods_of(key)[0]
    refused = {"status_reason": "UnexpectedAdmissionError", "status_message": "no such device"}
    world.pods[pod.name] = replace(pod, phase="Failed", ready=False, **refused)
    world.run(key)
    assert world.health[pod.node].status.failures == {"podRefused": 1}


def test_a_crash_alone_blames_nobody_but_the_job_goes_elsewhere() -> None:
    world, key = world_of("n1", "n2")
    world.report(key, step=50, durable=40)
    node = crash(world, key)
    go_on(world, key)
    assert world.job(key).phase == Phase.RUNNING
    assert host(world, key) != node
    assert not world.health


def test_a_crash_blames_its_node_when_the_job_gets_further_elsewhere() -> None:
    world, key = world_of("n1", "n2")
    world.report(key, step=50, durable=40)
    node = crash(world, key)
    go_on(world, key)
    world.report(key, step=50, durable=40)
    world.run(key)
    assert not world.health
    world.report(key, step=51, durable=40)
    world.run(key)
    assert world.health[node].status.failures == {"crash": 1}
    assert world.health[node].status.score == pytest.approx(0.5, abs=0.01)


def test_a_bug_that_crashes_everywhere_blames_nobody() -> None:
    world, key = world_of("n1", "n2", "n3", "n4", faultTolerance={"maxCrashRestarts": 6})
    for _ in range(7):
        world.report(key, step=50, durable=40)
        crash(world, key)
        go_on(world, key, 400)
    assert world.job(key).phase == Phase.FAILED
    assert not world.health


def test_a_job_that_reports_nothing_has_to_run_longer_elsewhere() -> None:
    world, key = world_of("n1", "n2")
    world.now += HOUR
    node = crash(world, key)
    go_on(world, key)
    world.now += HOUR
    world.run(key)
    assert not world.health
    world.now += 61
    world.run(key)
    assert world.health[node].status.failures == {"crash": 1}


def test_ranks_that_fail_at_the_same_moment_blame_nobody() -> None:
    world, key = world_of("n1", "n2", "n3", "n4", replicas=2)
    for pod in world.pods_of(key):
        world.exit(pod.name, 1)
    world.run(key)
    assert world.job(key).attempts[-1].blame is None


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_ranks_that_fail_at_the_same_moment_on_one_node_are_one_suspect(replicas: int) -> None:
    world = World()
    world.add_nodes("n1", gpus=4)
    key = world.submit(spec=job_spec(replicas))
    world.run(key)
    for pod in world.pods_of(key):
        world.exit(pod.name, 1)
    world.run(key)
    assert world.job(key).restarts.crash == 1
    assert world.job(key).attempts[-1].blame.nodes == ("n1",)


def test_only_the_rank_that_failed_first_is_held_against_its_node() -> None:
    world, key = world_of("n1", "n2", "n3", "n4", replicas=2)
    first, second = world.pods_of(key)
    world.exit(second.name, 1)
    world.now += 5
    world.exit(first.name, 1)
    world.run(key)
    assert world.job(key).attempts[-1].blame.nodes == (second.node,)


def test_an_exit_that_the_user_has_a_rule_for_blames_nobody() -> None:
    rules = [{"action": "RestartNotCounted", "exitCodes": [1]}]
    world, key = world_of("n1", "n2", faultTolerance={"rules": rules})
    crash(world, key)
    assert world.job(key).attempts[-1].blame is None


def test_memory_that_was_the_jobs_own_blames_nobody() -> None:
    world, key = world_of("n1", "n2")
    crash(world, key, reason="OOMKilled")
    assert world.job(key).attempts[-1].blame is None


def test_a_crash_that_was_a_lost_node_counts_as_that() -> None:
    world, key = world_of("n1", "n2", "n3", "n4", replicas=2)
    dead, survivor = world.pods_of(key)
    world.exit(survivor.name, 1)
    world.run(key)
    world.now += 20
    world.lose(dead.node)
    world.run(key)
    go_on(world, key)
    world.now += HOUR
    world.run(key)
    assert set(world.health) == {dead.node}
    assert world.health[dead.node].status.failures == {"nodeLost": 1}


def test_killed_between_the_two_writes_the_end_is_counted_once() -> None:
    for kill in range(16):
        world, key = world_of("n1", "n2")
        lost = host(world, key)
        world.lose(lost)
        world.stop_after = kill
        try:
            world.run(key)
        except OperatorKilledError:
            world.stop_after = None
            world.run(key)
        assert world.health[lost].status.count == 1
        assert world.job(key).attempts[-1].blame.counted


def test_what_an_administrator_deletes_stays_so() -> None:
    world, key = world_of("n1", "n2")
    lost = host(world, key)
    world.lose(lost)
    world.run(key)
    del world.health[lost]
    world.now += HOUR
    world.run(key)
    assert not world.health


def test_a_job_that_is_over_is_accounted_for_too() -> None:
    world, key = world_of("n1", faultTolerance={"maxInfrastructureRestarts": 0})
    world.lose("n1")
    world.run(key)
    assert world.job(key).phase == Phase.FAILED
    assert world.health["n1"].status.failures == {"nodeLost": 1}


# What it does to placements


def blamed(world: World, name: str, times: int) -> None:
    """A node that was lost so many times, an hour apart."""
    failures = [
        failure(FailureKind.NODE_LOST, job=f"old{each}").model_copy(
            update={"time": format_micro_time(world.now - each * HOUR)}
        )
        for each in range(times)
    ]
    status = penalty.add(None, world.nodes[name], failures, world.now, world.policy)
    world.health[name] = replace(health(name), status=status)


@pytest.mark.parametrize("times", [1, 5])
def test_a_node_that_has_failed_jobs_is_used_last(times: int) -> None:
    world = World()
    world.add_nodes("n1", "n2", "n3")
    blamed(world, "n1", times)
    keys = [world.submit(f"job{each}", job_spec(1)) for each in range(3)]
    for key in keys:
        world.run(key)
    assert [host(world, key) for key in keys[:2]] == ["n2", "n3"]
    world.now += 60
    world.run(keys[2])
    assert host(world, keys[2]) == "n1"


def test_a_penalised_node_is_taken_at_once_when_there_is_no_other() -> None:
    world = World()
    world.add_nodes("n1")
    blamed(world, "n1", 1)
    key = world.submit(spec=job_spec(1))
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_an_avoided_node_is_waited_out_but_not_for_ever() -> None:
    world = World()
    world.add_nodes("n1")
    blamed(world, "n1", 5)
    key = world.submit(spec=job_spec(1))
    world.run(key)
    (running,) = [each for each in world.job(key).conditions if each.type == "Running"]
    assert "avoided for now since they keep failing jobs" in running.message
    world.now += world.policy.node_avoid_seconds
    world.run(key)
    assert (world.job(key).phase, world.used()) == (Phase.RUNNING, 1)


def test_a_hold_shorter_than_the_patience_does_not_block_for_ever() -> None:
    world = World()
    world.policy = replace(world.policy, hold_seconds=5.0)
    world.add_nodes("n1")
    blamed(world, "n1", 5)
    key = world.submit(spec=job_spec(1))
    world.run(key)
    world.now += 3
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_a_healthy_gang_does_not_move_onto_an_avoided_node() -> None:
    world, key = world_of("n1", "n2")
    other = ({"n1", "n2"} - {host(world, key)}).pop()
    blamed(world, other, 5)
    world.cordon(host(world, key))
    world.run(key)
    assert world.job(key).attempt == 1
    world.sicken(host(world, key))
    world.run(key)
    world.now += 60
    world.run(key)
    assert (world.job(key).attempt, host(world, key)) == (2, other)


def test_a_replaced_node_is_as_good_as_new() -> None:
    world = World()
    world.add_nodes("n1", "n2")
    blamed(world, "n1", 5)
    world.nodes["n1"] = replace(world.nodes["n1"], uid="uid-new")
    key = world.submit(spec=job_spec(1))
    world.run(key)
    assert host(world, key) == "n1"
