"""Nodes that fall silent: when a job waits for them, and when it goes on without."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain.model import JobKey, Lease, NodeView, Silence
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy
from goodput_operator.domain.silence import LEAST, find_silence
from tests.unit.domain.world import World, job_spec, node

NOW = 1_000_000.0
HOLD, WINDOW = DEFAULT_POLICY.silence_hold_seconds, DEFAULT_POLICY.silence_window_seconds


def cluster(well: int, silences: Iterable[Silence]) -> list[NodeView]:
    made = [node(f"well-{i}") for i in range(well)]
    return made + [
        node(f"silent-{i}", ready=each.until is not None, unknown=each.until is None, silence=each)
        for i, each in enumerate(silences)
    ]


def ago(*seconds: float, heard: float | None = None) -> list[Silence]:
    """Silences that began so long ago, and ended so long ago, if they did."""
    return [Silence(NOW - each, None if heard is None else NOW - heard) for each in seconds]


@pytest.mark.parametrize(
    ("well", "silences", "held"),
    [
        (3, ago(), False),
        (2, ago(1), False),
        (1, ago(1, 1), False),
        (0, ago(1, 1, 1), True),
        (998, ago(1, 1), False),
        (1, ago(1, 2, 3, 4, 5), True),
        (3, ago(1, 1, 1), True),
        (4, ago(1, 1, 1), False),
        (499, ago(*[1] * 501), True),
        (501, ago(*[1] * 499), False),
        (1, ago(10, 71, 132, 193, 254), False),
        (3, ago(10, 20, 30, 250), False),
        (2, ago(10, 20, 30, 250), True),
        (3, ago(*[1e6] * 4, 1), False),
        (3, ago(*[1e6] * 4, 1, 1, 1), True),
        (1, ago(40, 40) + ago(40, 40, 40, heard=5), True),
        (1, ago(90, 90) + ago(90, 90, 90, heard=WINDOW), False),
        (1, ago(40, 40, 40, 40, 40, heard=5), False),
        (1, ago(*[HOLD - 1] * 5), True),
        (1, ago(*[HOLD] * 5), False),
        (1, ago(HOLD, *[HOLD - WINDOW] * 4), False),
    ],
    ids=[
        "all is well",
        "one of three: the demo",
        "two of three",
        "three of three",
        "two of a thousand",
        "five of six",
        "half",
        "three of seven",
        "half of a thousand",
        "less than half of a thousand",
        "five of six, one after the other",
        "half, but not of those of one window",
        "most of those of one window",
        "long dead ones and one more",
        "long dead ones, and half of the others",
        "most are heard again, the others may be next",
        "the others were heard long ago",
        "all are heard again",
        "just before the longest time",
        "the longest time is over",
        "the longest time is over for the first",
    ],
)
def test_the_rule(well: int, silences: list[Silence], held: bool) -> None:
    found = find_silence(cluster(well, silences), NOW, DEFAULT_POLICY)
    assert (found is not None) == held


def test_nodes_whose_kubelet_speaks_are_not_silent() -> None:
    sick = [node(f"n{i}", ready=False) for i in range(5)]
    assert find_silence([*sick, node("n5")], NOW, DEFAULT_POLICY) is None


silences = st.lists(
    st.builds(
        lambda began, heard: Silence(
            NOW - began, None if heard is None else NOW - min(began, heard)
        ),
        st.floats(0, 2 * HOLD),
        st.none() | st.floats(0, 2 * HOLD),
    ),
    max_size=12,
)


@given(st.integers(0, 12), silences, st.randoms())
def test_the_rule_holds_few_things_still_and_not_for_ever(well, silences, random) -> None:
    nodes = cluster(well, silences)
    found = find_silence(nodes, NOW, DEFAULT_POLICY)
    random.shuffle(nodes)
    assert find_silence(nodes, NOW, DEFAULT_POLICY) == found
    if found is None:
        more = [*nodes, node("another")]
        assert find_silence(more, NOW, DEFAULT_POLICY) is None
        return
    assert LEAST <= found.silent <= found.nodes <= 2 * found.silent
    assert NOW < found.until <= NOW + HOLD
    for later in (found.until, found.until + 1, found.until + WINDOW, found.until + HOLD):
        held = find_silence(nodes, later, DEFAULT_POLICY)
        assert held is None or held.until > found.until  # another group, that began later


def silence(world: World, *names: str) -> None:
    """The controller manager marks nodes as Unknown."""
    for name in names:
        world.nodes[name] = replace(
            world.nodes[name],
            ready=False,
            unknown=True,
            ready_since=world.now,
            silence=Silence(world.now),
        )


def hear(world: World, *names: str) -> None:
    for name in names:
        known = world.nodes[name].silence
        assert known is not None
        world.nodes[name] = replace(
            world.nodes[name],
            ready=True,
            unknown=False,
            lease=Lease.UNKNOWN,
            silence=replace(known, until=world.now),
        )


def lease(world: World, name: str, state: Lease, since: float) -> None:
    world.nodes[name] = replace(world.nodes[name], lease=state, silence=Silence(since))


def running(nodes: int, **spec) -> tuple[World, JobKey]:
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(nodes)))
    key = world.submit(spec=job_spec(**spec))
    world.run(key)
    assert world.job(key).phase is Phase.RUNNING
    return world, key


def hosts(world: World, key: JobKey) -> list[str]:
    return [pod.node or "" for pod in world.pods_of(key)]


def test_when_most_nodes_fall_silent_the_job_holds_still_and_says_so() -> None:
    world, key = running(6)
    silence(world, *(f"n{i}" for i in range(5)))
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.reason, status.attempt) == (Phase.RUNNING, "ClusterSilent", 1)
    told = {each.type: each.message for each in status.conditions}["Running"]
    assert "5 of 6 nodes fell silent at once" in told
    world.now += 30
    hear(world, "n2", "n3", "n4")
    world.run(key)  # its own nodes are still silent, and may be the next to be heard
    assert (world.job(key).reason, world.job(key).attempt) == (c.Reason.CLUSTER_SILENT, 1)
    world.now += 5
    hear(world, "n0", "n1")
    world.run(key)
    status = world.job(key)
    assert (status.reason, status.attempt) == (c.Reason.ALL_RANKS_READY, 1)
    assert status.restarts.infrastructure == 0
    assert "NodeLost" not in world.reasons(key)


def test_a_job_that_is_held_is_looked_at_again_until_the_longest_time_is_over() -> None:
    world, key = running(8)
    silence(world, *hosts(world, key), "n4", "n5", "n6")
    began = world.now
    for _ in range(200):
        plan = world.step(key)
        if world.job(key).attempt != 1 or plan.commit:
            break
        assert plan.requeue_after is not None
        world.now += plan.requeue_after
    assert HOLD <= world.now - began <= HOLD + 5
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)
    assert world.job(key).restarts.infrastructure == 1


def test_nodes_that_stay_silent_when_the_others_are_heard_are_lost() -> None:
    world, key = running(6)
    silence(world, *(f"n{i}" for i in range(5)))
    world.run(key)
    hear(world, "n2", "n3", "n4")
    world.now += WINDOW
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)
    assert not {"n0", "n1"} & set(hosts(world, key))


def test_a_waiting_job_keeps_its_quota_while_the_cluster_is_silent() -> None:
    world, key = running(6)
    world.nodes["n5"] = replace(world.nodes["n5"], unschedulable=True)
    world.exit("job-a1-worker-0", 1)
    world.run(key)
    silence(world, *(f"n{i}" for i in range(5)))
    for _ in range(12):
        world.now += 15
        world.run(key)
    assert world.workload(key).holds_quota
    assert "QuotaReleased" not in world.reasons(key)
    hear(world, *(f"n{i}" for i in range(5)))
    world.run(key)
    assert world.job(key).phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("nodes", "lost"), [(3, 1), (1000, 2)], ids=["one of three", "both of a thousand"]
)
def test_few_lost_nodes_are_not_waited_for_longer_than_a_moment(nodes: int, lost: int) -> None:
    world, key = running(nodes)
    silence(world, *hosts(world, key)[:lost])
    world.run(key)
    assert world.job(key).attempt == 1
    world.now += DEFAULT_POLICY.settle_seconds
    world.run(key)
    assert (world.job(key).attempt, world.job(key).restarts.infrastructure) == (2, 1)


def test_marks_that_are_known_late_are_waited_with_as_if_they_were_new() -> None:
    """The watch was away; the first of many nodes is told, and the others a moment later."""
    world, key = running(6)
    first, *others = sorted(world.nodes, key=lambda name: name not in hosts(world, key))
    silence(world, first)
    world.now += 60
    world.nodes[first] = replace(world.nodes[first], seen_lost_at=world.now)
    world.run(key)
    assert world.job(key).attempt == 1
    for name in others[:4]:
        silence(world, name)
        world.nodes[name] = replace(world.nodes[name], ready_since=NOW, silence=Silence(world.now))
    world.now += 10
    world.run(key)
    assert (world.job(key).attempt, world.job(key).reason) == (1, "ClusterSilent")


def test_most_nodes_deleted_is_somebodys_will() -> None:
    world, key = running(6)
    for name in [*hosts(world, key), "n4", "n5"]:
        world.nodes.pop(name, None)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).restarts.infrastructure) == (2, 1)


@pytest.mark.parametrize("how", ["deleted", "not ready"])
def test_a_node_that_is_surely_lost_is_not_waited_for_amid_silence(how: str) -> None:
    world, key = running(8)
    first, second = hosts(world, key)
    silence(world, second, "n4", "n5", "n6", "n7")
    if how == "deleted":
        del world.nodes[first]
    else:
        world.lose(first)
    world.run(key)
    assert world.job(key).restarts.infrastructure == 1


def test_case_08_two_nodes_marked_a_second_apart_are_one_restart() -> None:
    world, key = running(4)
    first, second = hosts(world, key)
    silence(world, first)
    world.run(key)
    world.now += 1
    silence(world, second)
    world.run(key)
    world.now += 1
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.restarts.infrastructure) == (2, 1)
    assert set(status.attempts[-1].lost_nodes) == {first, second}


def test_case_08_a_node_whose_lease_is_late_gets_no_rank_of_the_next_attempt() -> None:
    world, key = running(3)
    first, second = hosts(world, key)
    lease(world, first, Lease.STALE, world.now - 20)
    lease(world, second, Lease.LATE, world.now - 15)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).reason) == (1, c.Reason.WAITING_FOR_NODES)
    world.now += 5
    lease(world, second, Lease.STALE, world.now - 20)
    world.add_nodes("n3")
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.restarts.infrastructure) == (2, 1)
    assert set(hosts(world, key)) == {"n2", "n3"}


def test_a_node_whose_lease_was_only_late_is_used_once_it_is_renewed() -> None:
    world, key = running(3)
    first, second = hosts(world, key)
    lease(world, first, Lease.STALE, world.now - 20)
    lease(world, second, Lease.LATE, world.now - 15)
    world.run(key)
    hear(world, second)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).phase) == (2, Phase.RUNNING)
    assert set(hosts(world, key)) == {second, "n2"}


def test_a_stale_lease_is_a_lost_node_at_once_and_says_since_when() -> None:
    world, key = running(4)
    first = hosts(world, key)[0]
    lease(world, first, Lease.STALE, world.now - 20)
    world.run(key)
    assert world.job(key).attempt == 2
    assert f"node {first} has not renewed its Lease since" in world.job(key).attempts[-1].message


def test_a_late_lease_alone_does_not_end_an_attempt() -> None:
    world, key = running(4)
    lease(world, hosts(world, key)[0], Lease.LATE, world.now - 15)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).reason) == (1, c.Reason.ALL_RANKS_READY)


def test_late_leases_count_when_most_of_the_cluster_falls_silent() -> None:
    world, key = running(6)
    lease(world, hosts(world, key)[0], Lease.STALE, world.now - 20)
    for name in ("n2", "n3", "n4"):
        lease(world, name, Lease.LATE, world.now - 12)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).reason) == (1, c.Reason.CLUSTER_SILENT)


def test_pods_of_silent_nodes_hold_the_quota_while_the_cluster_is_silent() -> None:
    world, key = running(6)
    silence(world, *(f"n{i}" for i in range(5)))
    world.now += DEFAULT_POLICY.node_gone_seconds + 1
    world.edit(key, suspend=True)
    world.run(key)
    assert (world.job(key).phase, world.used()) == (Phase.STOPPING, 2)
    world.now += HOLD
    world.run(key)
    assert (world.job(key).phase, world.used()) == (Phase.SUSPENDED, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["silence", "hear", "wait"]), st.integers(0, 7)), max_size=25
)


@given(steps)
def test_no_attempt_ends_for_silent_nodes_while_most_are_silent(steps) -> None:
    world, key = running(8)
    world.policy = Policy(hold_seconds=1e9)
    for what, number in steps:
        name = f"n{number}"
        if what == "wait":
            world.now += 10 * number
        elif what == "silence" and world.nodes[name].ready:
            silence(world, name)
        elif what == "hear" and not world.nodes[name].ready:
            hear(world, name)
        held = find_silence(world.nodes.values(), world.now, world.policy)
        ended = len(world.job(key).attempts)
        world.run(key)
        assert held is None or len(world.job(key).attempts) == ended
