"""Restart scope Failed: the lost ranks are replaced, and the others go on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.status import Outcome, Phase, Placement, Restarts
from goodput_operator.domain.model import ContainerExit, JobKey
from goodput_operator.domain.placement import codec
from goodput_operator.domain.placement.gang import Placed
from goodput_operator.domain.placement.ledger import free_resources
from tests.unit.domain.world import GPU, OperatorKilledError, World, job_spec


def running(
    replicas: int = 3, nodes: int = 5, **tolerance: Any
) -> tuple[World, JobKey, dict[str, str]]:
    """A world with a running job, and the UIDs of its pods by their names."""
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(nodes)))
    options = {"restartScope": "Failed", **tolerance}
    key = world.submit(spec=job_spec(replicas=replicas, faultTolerance=options))
    world.run(key)
    return world, key, {pod.name: pod.uid for pod in world.pods_of(key)}


def lose(world: World, pod: str) -> str:
    """The node of a pod is lost; its name."""
    node = world.pods[pod].node
    assert node is not None
    world.lose(node)
    world.now += world.policy.settle_seconds
    return node


def live(world: World, key: JobKey) -> set[str]:
    """Names of the pods that are there and on nodes that are."""
    return {
        pod.name
        for pod in world.pods_of(key)
        if not pod.deleting and not pod.terminal and not world.nodes[pod.node or ""].lost
    }


def test_of_a_lost_node_only_its_rank_is_replaced_and_the_others_go_on() -> None:
    world, key, before = running()
    lost = lose(world, "job-a1-worker-1")
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.ready) == (Phase.RUNNING, 1, "3/3")
    assert status.restarts == Restarts(infrastructure=1)
    assert live(world, key) == {"job-a1-worker-0", "job-a1-worker-1-r1", "job-a1-worker-2"}
    for name in ("job-a1-worker-0", "job-a1-worker-2"):
        assert world.pods[name].uid == before[name]
    assert world.pods["job-a1-worker-1-r1"].node != lost
    assert world.job(key).attempts == ()
    assert "worker-1" in status.replacements[-1].ranks
    assert "RanksReplaced" in world.reasons(key)


def test_a_rank_can_be_replaced_again_and_again() -> None:
    world, key, _ = running(nodes=8)
    for incarnation in (1, 2, 3):
        pod = next(p for p in world.pods_of(key) if p.name in live(world, key) and p.rank == 1)
        lose(world, pod.name)
        world.now += 100
        world.run(key)
        assert f"job-a1-worker-1-r{incarnation}" in live(world, key)
    assert world.job(key).attempt == 1
    assert world.job(key).restarts == Restarts(infrastructure=3)


def test_two_nodes_lost_at_once_are_one_replacement() -> None:
    world, key, _ = running(nodes=6)
    lose(world, "job-a1-worker-1")
    lose(world, "job-a1-worker-2")
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.restarts, len(status.replacements)) == (
        1,
        Restarts(infrastructure=1),
        1,
    )
    assert live(world, key) == {"job-a1-worker-0", "job-a1-worker-1-r1", "job-a1-worker-2-r1"}


def test_the_loss_of_the_rank_that_hosts_the_rendezvous_restarts_the_gang() -> None:
    world, key, _ = running()
    lose(world, "job-a1-worker-0")
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.replacements) == (Phase.RUNNING, 2, ())
    assert status.attempts[-1].outcome == Outcome.INFRASTRUCTURE_LOST
    assert len(live(world, key)) == 3


def test_without_room_for_the_lost_rank_alone_the_gang_ends_and_gives_its_quota_back() -> None:
    world, key, _ = running(nodes=3)
    lose(world, "job-a1-worker-1")
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.RESTARTING, "WaitingForNodes")
    assert world.job(key).placement is None


def test_on_a_full_cluster_a_deleted_pod_is_replaced_where_it_was() -> None:
    world, key, before = running(nodes=3)
    pod = world.pods["job-a1-worker-1"]
    world.pods[pod.name] = replace(pod, deleting=True)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt, status.restarts.infrastructure) == (Phase.RUNNING, 1, 1)
    assert world.pods["job-a1-worker-1-r1"].node == pod.node
    assert world.pods["job-a1-worker-0"].uid == before["job-a1-worker-0"]


def crash(world: World, name: str, code: int = 7) -> None:
    exits = (ContainerExit("main", code, "Error", "", world.now),)
    world.pods[name] = replace(world.pods[name], phase="Failed", ready=False, exits=exits)


def test_a_crashed_rank_is_replaced_after_its_backoff_and_the_budget_ends_it() -> None:
    world, key, before = running(maxCrashRestarts=2)
    for incarnation, wait in ((0, 10), (1, 20)):
        crash(world, "job-a1-worker-1" + (f"-r{incarnation}" if incarnation else ""))
        world.run(key)
        assert (world.job(key).phase, world.job(key).reason) == (Phase.RESTARTING, "BackingOff")
        world.now += wait
        world.run(key)
        assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 1)
    assert world.pods["job-a1-worker-0"].uid == before["job-a1-worker-0"]
    crash(world, "job-a1-worker-1-r2")
    world.run(key)
    world.now += world.policy.attribution_seconds + 1
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.reason) == (Phase.FAILED, "CrashBudgetExhausted")
    assert status.restarts == Restarts(crash=3)


def test_a_rule_that_says_fail_fails() -> None:
    world, key, _ = running(rules=[{"action": "Fail", "exitCodes": [42]}])
    crash(world, "job-a1-worker-1", 42)
    world.run(key)
    world.now += world.policy.attribution_seconds + 1
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.FAILED, "FailureRule")


def test_a_crash_that_a_lost_node_explains_is_put_down_to_it() -> None:
    world, key, _ = running(nodes=8)
    crash(world, "job-a1-worker-2")
    world.run(key)
    assert world.job(key).restarts == Restarts(crash=1)
    world.now += 15
    lose(world, "job-a1-worker-1")
    world.run(key)
    world.now += 60
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    assert world.job(key).restarts == Restarts(infrastructure=2)
    assert world.job(key).charged == Restarts(infrastructure=2)


def test_no_other_job_gets_the_room_between_the_commit_and_the_pods() -> None:
    world, key, _ = running()
    lose(world, "job-a1-worker-1")
    plan = world.step(key)
    assert plan.commit
    assert world.job(key).placement.replacing
    taken = world.job(key).placement
    node = codec.decode(taken)["worker"][1]
    other = world.submit("other", job_spec(replicas=1))
    assert free_resources(world.snapshot(), other)[node].get(GPU) == 0


def test_a_pod_that_was_replaced_never_counts_again() -> None:
    """A node comes back with the old pod still running on it."""
    world, key, _ = running()
    lost = lose(world, "job-a1-worker-1")
    world.run(key)
    world.nodes[lost] = replace(world.nodes[lost], ready=True)
    old = world.pods.get("job-a1-worker-1")
    assert old is not None
    assert old.deleting
    crash(world, "job-a1-worker-1")
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.ready, status.restarts) == (
        Phase.RUNNING,
        "3/3",
        Restarts(infrastructure=1),
    )


def test_under_scope_gang_nothing_is_replaced() -> None:
    world, key, _ = running(restartScope="Gang")
    lose(world, "job-a1-worker-1")
    world.run(key)
    assert (world.job(key).attempt, world.job(key).replacements) == (2, ())


Story = Callable[[World, JobKey], None]


def lose_a_rank(world: World, key: JobKey) -> None:
    world.run(key)
    lose(world, "job-a1-worker-1")
    world.run(key)


def crash_a_rank(world: World, key: JobKey) -> None:
    world.run(key)
    crash(world, "job-a1-worker-1")
    world.run(key)
    world.now += 30
    world.run(key)


@pytest.mark.parametrize("story", [lose_a_rank, crash_a_rank])
def test_case_12_killed_before_any_write_a_replacement_ends_in_the_same_state(story: Story) -> None:
    def world_and_job() -> tuple[World, JobKey]:
        world = World()
        world.add_nodes("n1", "n2", "n3", "n4")
        options = {"restartScope": "Failed"}
        return world, world.submit(spec=job_spec(replicas=3, faultTolerance=options))

    calm, key = world_and_job()
    story(calm, key)
    assert calm.job(key).phase == Phase.RUNNING
    assert calm.job(key).attempt == 1
    for gap in range(len(calm.writes)):
        world, key = world_and_job()
        world.stop_after = gap
        original = world.step

        def step(key: JobKey, world: World = world, original: Callable[..., Any] = original) -> Any:
            try:
                return original(key)
            except OperatorKilledError:
                world.stop_after = None
                return original(key)

        world.step = step  # type: ignore[method-assign]
        story(world, key)
        told = f"killed before write {gap} ({calm.writes[gap]})"
        assert world.job(key).restarts == calm.job(key).restarts, told
        assert set(world.pods) == set(calm.pods), told
        assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 1), told
        assert max(world.created.values()) == 1, told


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.sampled_from(["n1", "n2", "n9"]),
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_replaced_ranks_are_where_they_were_put_and_counted(
    moved: dict[tuple[str, int], str], times: int
) -> None:
    names = {"a": tuple(f"n{i % 3}" for i in range(10)), "b": ("n5",) * 10}
    nodes, roles = codec.encode(Placed(names))
    now = "2026-01-31T08:00:00Z"
    placement = Placement(attempt=1, nodes=nodes, roles=roles, committed_at=now)
    for _ in range(times):
        placement = codec.replaced(placement, moved)
    found = codec.decode(placement)
    for (role, rank), node in moved.items():
        assert found[role][rank] == node
    assert codec.incarnations(placement) == dict.fromkeys(moved, times)
    kept = {
        (role, rank): node
        for role, each in names.items()
        for rank, node in enumerate(each)
        if (role, rank) not in moved
    }
    assert all(found[role][rank] == node for (role, rank), node in kept.items())
