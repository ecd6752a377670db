"""Nodes that are cordoned, drained or unhealthy: when the gang leaves, and at what cost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, Condition, Outcome, Phase, Restarts
from goodput_operator.api.times import parse_time
from goodput_operator.domain import plan as p
from goodput_operator.domain.health import checkpoint_request
from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import OperatorKilledError, World, job_spec, template

CHECKPOINT = {"uri": "gs://bucket/run", "gracePeriodSeconds": 20}
PATIENCE = 20 + 120


def world_of(*nodes: str, **spec: Any) -> tuple[World, JobKey]:
    """A job of two ranks that has saved step 100, and reached step 120."""
    world = World()
    world.add_nodes(*nodes)
    key = world.submit(spec=job_spec(checkpoint=CHECKPOINT, **spec))
    world.run(key)
    world.report(key, step=120, durable=100)
    world.run(key)
    world.now += 10
    return world, key


def host(world: World, key: JobKey) -> str:
    node = world.pods_of(key)[0].node
    assert node is not None
    return node


def migrating(world: World, key: JobKey) -> Condition | None:
    found = [each for each in world.job(key).conditions if each.type == "Migrating"]
    return found[0] if found else None


def how(world: World, key: JobKey) -> tuple[str, str]:
    condition = migrating(world, key)
    assert condition is not None
    return condition.status, condition.reason


def test_a_cordoned_node_is_left_after_a_checkpoint_and_nothing_is_counted() -> None:
    world, key = world_of("n1", "n2", "n3", faultTolerance={"maxCrashRestarts": 0})
    left = host(world, key)
    world.cordon(left)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.ready) == (Phase.RUNNING, 1, "2/2")
    assert checkpoint_request(status) == int(world.now)
    assert how(world, key) == ("True", "NodeCordoned")
    world.now += 15
    world.report(key, step=140, durable=140)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.move) == (Phase.RUNNING, 2, None)
    assert left not in status.placement.nodes
    assert status.placement.resume_step == 140
    assert (status.attempts[-1].outcome, status.attempts[-1].cause) == (
        Outcome.MIGRATED,
        Cause.MIGRATION,
    )
    assert status.restarts == Restarts(migration=1)
    assert how(world, key) == ("False", "Migrated")
    assert [each for each in world.reasons(key) if each.startswith("Migrat")] == [
        "Migrating",
        "Migrated",
    ]
    assert not world.health
    assert checkpoint_request(status) is None


def test_a_checkpoint_of_the_same_second_but_before_the_request_is_not_the_last_one() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.now += 0.2
    world.report(key, step=120, durable=110)
    world.now += 0.3
    world.cordon(host(world, key))
    world.run(key)
    assert (world.job(key).attempt, how(world, key)) == (1, ("True", "NodeCordoned"))
    world.now += 0.1
    world.report(key, step=125, durable=125)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).placement.resume_step) == (2, 125)


def test_the_ranks_that_leave_keep_their_own_grace() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.cordon(host(world, key))
    plans = [world.step(key)]
    world.report(key, step=140, durable=140)
    plans += [world.step(key) for _ in range(3)]
    deleted = [each for plan in plans for each in plan.actions if isinstance(each, p.DeletePod)]
    assert [each.grace_seconds for each in deleted] == [None, None]


def test_the_next_attempt_begins_when_the_last_rank_has_saved_but_no_later_than_its_grace() -> None:
    for stuck in (False, True):
        world, key = world_of("n1", "n2", "n3")
        world.cordon(host(world, key))
        world.run(key)
        world.report(key, step=140, durable=140)
        for _ in range(3):
            world.step(key)
        for pod in world.pods_of(key, 1):
            assert pod.deleting
            world.pods[pod.name] = replace(pod, deletion_deadline=world.now + 30)
        status = world.job(key)
        assert (status.phase, status.reason) == (Phase.RESTARTING, "Migrated")
        plan = world.step(key)
        assert (plan.actions, plan.status) == ((), None)
        assert 0 < plan.requeue_after <= 32
        if stuck:
            world.now += 33
        else:
            world.report(key, step=143, durable=143)
            for pod in world.pods_of(key, 1):
                del world.pods[pod.name]
        world.step(key)
        world.step(key)
        assert world.job(key).attempt == 2
        assert world.job(key).placement.resume_step == (140 if stuck else 143)


def test_the_move_is_two_commits_and_no_pod_is_touched_before_the_second() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.cordon(host(world, key))
    begin = world.step(key)
    assert begin.commit
    assert begin.status.move is not None
    waiting = world.step(key)
    assert not waiting.actions
    assert waiting.requeue_after == pytest.approx(PATIENCE)
    world.report(key, step=140, durable=140)
    end = world.step(key)
    assert end.commit
    assert (end.status.placement, end.status.move) == (None, None)


def test_without_a_new_checkpoint_it_leaves_at_the_deadline() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.cordon(host(world, key))
    world.run(key)
    assert parse_time(world.job(key).move.deadline) == pytest.approx(world.now + PATIENCE)
    world.now += PATIENCE - 1
    world.run(key)
    assert world.job(key).attempt == 1
    world.now += 1
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)
    assert "without a new checkpoint" in world.job(key).attempts[-1].message


@pytest.mark.parametrize("spec", [{}, {"checkpoint": CHECKPOINT}], ids=["no place", "no report"])
def test_a_gang_that_has_nothing_to_save_leaves_at_once(spec: dict[str, Any]) -> None:
    world = World()
    world.add_nodes("n1", "n2", "n3")
    key = world.submit(spec=job_spec(**spec))
    world.run(key)
    world.cordon(host(world, key))
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)
    assert world.job(key).restarts == Restarts(migration=1)


def test_the_room_of_the_gang_itself_counts_when_a_place_is_sought() -> None:
    world, key = world_of("n1", "n2", "n3")
    other = world.submit("other", job_spec(1))
    world.add_nodes("n4")
    world.run(other)
    world.cordon(host(world, key))
    world.report(key, step=140, durable=140)
    world.run(key)
    assert world.job(key).attempt == 2


def test_without_room_elsewhere_a_cordoned_gang_stays_and_says_so_once() -> None:
    world, key = world_of("n1", "n2")
    left = host(world, key)
    world.cordon(left)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.move) == (Phase.RUNNING, 1, None)
    assert how(world, key) == ("False", "WaitingForRoom")
    assert f"node {left} is cordoned" in migrating(world, key).message
    written = len(world.writes)
    for _ in range(5):
        world.now += 60
        world.run(key)
    assert len(world.writes) == written
    world.add_nodes("n3")
    world.run(key)
    assert how(world, key) == ("True", "NodeCordoned")
    world.report(key, step=140, durable=140)
    world.run(key)
    assert world.job(key).attempt == 2


def test_an_uncordoned_gang_that_stayed_takes_back_what_it_said() -> None:
    world, key = world_of("n1", "n2")
    world.cordon(host(world, key))
    world.run(key)
    world.cordon(host(world, key), cordoned=False)
    world.run(key)
    assert how(world, key) == ("False", "NothingToLeave")
    assert (world.job(key).attempt, world.job(key).phase) == (1, Phase.RUNNING)


def test_uncordoned_before_it_has_left_the_move_is_called_off() -> None:
    world, key = world_of("n1", "n2", "n3")
    left = host(world, key)
    world.cordon(left)
    world.run(key)
    world.cordon(left, cordoned=False)
    world.report(key, step=140, durable=140)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.move) == (Phase.RUNNING, 1, None)
    assert status.restarts == Restarts()
    assert how(world, key) == ("False", "NothingToLeave")
    assert world.reasons(key)[-1] == "MigrationCancelled"


def test_a_flapping_cordon_asks_for_a_checkpoint_once_a_minute_at_most() -> None:
    world, key = world_of("n1", "n2", "n3")
    left, requests = host(world, key), set()
    for second in range(0, 120, 5):
        world.cordon(left, cordoned=second % 10 == 0)
        world.run(key)
        requests.add(checkpoint_request(world.job(key)))
        world.now += 5
    assert len(requests - {None}) <= 3
    assert world.job(key).attempt == 1
    world.cordon(left)
    world.now += 60
    world.run(key)
    world.report(key, step=140, durable=140)
    world.run(key)
    assert world.job(key).attempt == 2


def test_room_that_vanishes_while_it_saves_calls_a_cordons_move_off() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.cordon(host(world, key))
    world.run(key)
    spare = ({"n1", "n2", "n3"} - set(world.job(key).placement.nodes)).pop()
    world.lose(spare)
    world.report(key, step=140, durable=140)
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.move, status.phase) == (1, None, Phase.RUNNING)
    assert how(world, key) == ("False", "WaitingForRoom")


def test_a_role_that_tolerates_a_cordon_is_not_moved() -> None:
    tolerant = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    roles = [{"name": "worker", "replicas": 2, "template": template(tolerations=[tolerant])}]
    world = World()
    world.add_nodes("n1", "n2", "n3")
    key = world.submit(spec=job_spec().model_validate({"roles": roles}))
    world.run(key)
    world.cordon(host(world, key))
    world.run(key)
    assert (world.job(key).attempt, migrating(world, key)) == (1, None)


def test_a_rank_that_has_succeeded_does_not_hold_its_node() -> None:
    world, key = world_of("n1", "n2", "n3")
    done = world.pods_of(key)[0]
    world.exit(done.name, 0)
    world.run(key)
    world.cordon(done.node)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).move) == (1, None)


def test_before_its_pods_are_created_a_cordoned_node_costs_nothing() -> None:
    world = World()
    world.add_nodes("n1", "n2", "n3")
    key = world.submit()
    while world.job(key).placement is None:
        world.step(key)
        world.play()
    world.cordon(world.job(key).placement.nodes[0])
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.phase, status.restarts) == (2, Phase.RUNNING, Restarts())


# Unhealthy nodes


def test_case_16_a_bad_node_condition_moves_the_job() -> None:
    world, key = world_of("n1", "n2", "n3", faultTolerance={"maxCrashRestarts": 0})
    left = host(world, key)
    world.sicken(left)
    world.run(key)
    assert how(world, key) == ("True", "NodeUnhealthy")
    assert "GPUMissing (it is broken)" in migrating(world, key).message
    world.report(key, step=140, durable=140)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.restarts) == (
        Phase.RUNNING,
        2,
        Restarts(migration=1),
    )
    assert left not in status.placement.nodes
    assert world.health[left].status.failures == {"condition": 1}


def test_no_rank_is_planned_on_an_unhealthy_node() -> None:
    world = World()
    world.add_nodes("n1", "n2")
    world.sicken("n1")
    key = world.submit()
    world.run(key)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES
    message = world.job(key).conditions[-1].message
    assert "1 node(s) had the condition GPUMissing" in message
    world.sicken("n1", None)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_without_room_an_unhealthy_node_is_left_at_the_deadline_and_the_quota_given_back() -> None:
    world, key = world_of("n1", "n2")
    world.sicken(host(world, key))
    world.run(key)
    world.report(key, step=140, durable=140)
    world.run(key)
    assert (world.job(key).attempt, world.used()) == (1, 2)
    world.now += PATIENCE
    world.run(key)
    status = world.job(key)
    assert (status.reason, world.used()) == (c.Reason.NODE_UNHEALTHY, 0)
    assert status.restarts == Restarts(migration=1)
    world.add_nodes("n3")
    world.now += 20
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)


def test_when_most_nodes_are_said_to_be_unhealthy_no_gang_is_stopped_for_it() -> None:
    world, key = world_of("n1", "n2", "n3", "n4")
    for name in ("n1", "n2", "n3"):
        world.sicken(name)
    world.run(key)
    world.now += PATIENCE
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (1, Phase.RUNNING)
    assert how(world, key) == ("False", "WaitingForRoom")
    world.add_nodes("n5")
    world.run(key)
    assert how(world, key) == ("True", "NodeUnhealthy")


def test_room_that_appears_before_the_deadline_is_taken() -> None:
    world, key = world_of("n1", "n2")
    world.sicken(host(world, key))
    world.run(key)
    world.report(key, step=140, durable=140)
    world.run(key)
    world.add_nodes("n3")
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase, world.used()) == (2, Phase.RUNNING, 2)


def test_a_condition_that_clears_in_time_costs_nothing() -> None:
    world, key = world_of("n1", "n2")
    world.sicken(host(world, key))
    world.run(key)
    world.sicken(host(world, key), None)
    world.now += PATIENCE
    world.run(key)
    assert (world.job(key).attempt, world.job(key).move, world.health) == (1, None, {})


# Drains


def test_a_flapping_condition_asks_for_a_checkpoint_once_a_minute_at_most() -> None:
    world, key = world_of("n1", "n2", "n3")
    left, requests = host(world, key), set()
    for second in range(0, 120, 5):
        world.sicken(left, "GPUMissing" if second % 10 == 0 else None)
        world.run(key)
        requests.add(checkpoint_request(world.job(key)))
        world.now += 5
    assert len(requests - {None}) <= 3
    assert world.job(key).attempt == 1


def test_a_drain_counts_as_a_migration() -> None:
    world, key = world_of(
        "n1",
        "n2",
        "n3",
        faultTolerance={"maxCrashRestarts": 0, "maxInfrastructureRestarts": 0},
    )
    left = host(world, key)
    world.cordon(left)
    world.evict_pod(world.pods_of(key)[0].name)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.restarts) == (
        Phase.RUNNING,
        2,
        Restarts(migration=1),
    )
    assert left not in status.placement.nodes
    assert "Migrated" in world.reasons(key)


@pytest.mark.parametrize("seen", [True, False], ids=["stops", "is gone at once"])
def test_a_drain_that_deletes_pods_counts_as_a_migration(seen: bool) -> None:
    world, key = world_of("n1", "n2", "n3")
    pod = world.pods_of(key)[0]
    world.cordon(pod.node)
    if seen:
        world.pods[pod.name] = replace(pod, deleting=True)
    else:
        del world.pods[pod.name]
    world.run(key)
    assert (world.job(key).attempt, world.job(key).restarts) == (2, Restarts(migration=1))


def test_an_eviction_from_a_node_that_takes_ranks_is_infrastructure() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.evict_pod(world.pods_of(key)[0].name)
    world.run(key)
    assert world.job(key).restarts == Restarts(infrastructure=1)


def test_a_node_lost_while_it_is_left_is_infrastructure() -> None:
    world, key = world_of("n1", "n2", "n3")
    left = host(world, key)
    world.cordon(left)
    world.run(key)
    world.lose(left)
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.move, status.restarts) == (2, None, Restarts(infrastructure=1))
    assert how(world, key)[0] == "False"


def suspend(world: World, key: JobKey) -> None:
    world.edit(key, suspend=True)


def preempt(world: World, key: JobKey) -> None:
    world.evict(key, "Preempted")


@pytest.mark.parametrize("stop", [suspend, preempt])
def test_what_stops_the_gang_meanwhile_ends_the_move(stop: Callable[[World, JobKey], None]) -> None:
    world, key = world_of("n1", "n2", "n3")
    world.cordon(host(world, key))
    world.run(key)
    stop(world, key)
    world.run(key)
    assert world.job(key).move is None
    assert how(world, key)[0] == "False"
    assert world.job(key).restarts.migration == 0


def run_with_a_kill(world: World, key: JobKey) -> None:
    try:
        world.run(key)
    except OperatorKilledError:
        world.stop_after = None
        world.run(key)


def test_killed_before_any_write_the_operator_moves_the_gang_all_the_same() -> None:
    for kill in range(12):
        world, key = world_of("n1", "n2", "n3")
        left = host(world, key)
        world.sicken(left)
        world.stop_after = kill
        run_with_a_kill(world, key)
        world.report(key, step=140, durable=140)
        run_with_a_kill(world, key)
        status = world.job(key)
        assert (status.attempt, status.phase, status.restarts.migration) == (2, Phase.RUNNING, 1)
        assert left not in status.placement.nodes
        assert world.health[left].status.count == 1


def test_a_deleted_job_is_not_moved() -> None:
    world, key = world_of("n1", "n2", "n3")
    world.jobs[key] = replace(world.jobs[key], deleting=True)
    world.cordon(host(world, key))
    assert world.step(key) == p.NOTHING
