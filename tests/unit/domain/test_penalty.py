"""What a node is blamed for, how that decays, and that counting it again changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.node_health import MAX_RECENT, FailureKind, NodeFailure
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain import penalty
from goodput_operator.domain.model import NodeHealthView
from goodput_operator.domain.policy import DEFAULT_POLICY as POLICY
from tests.unit.domain.world import node

NOW = 1_000_000.0
HALF_LIFE = POLICY.node_penalty_half_life_seconds
LOST, CRASH = FailureKind.NODE_LOST, FailureKind.CRASH
REFUSED, CONDITION = FailureKind.POD_REFUSED, FailureKind.CONDITION


def failure(
    kind: FailureKind = LOST, ago: float = 0.0, job: str = "a", attempt: int = 1
) -> NodeFailure:
    return NodeFailure(
        job=f"team/{job}",
        job_uid=f"uid-{job}",
        attempt=attempt,
        kind=kind,
        time=format_micro_time(NOW - ago),
    )


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], 0.0),
        ([failure(LOST)], 1.0),
        ([failure(CONDITION)], 1.0),
        ([failure(REFUSED)], 0.5),
        ([failure(CRASH)], 0.5),
        ([failure(LOST, HALF_LIFE)], 0.5),
        ([failure(LOST, 2 * HALF_LIFE)], 0.25),
        ([failure(LOST, -60)], 1.0),
        ([failure(LOST, 10, "a"), failure(LOST, 0, "b")], 1.0),
        ([failure(REFUSED, 10, "a"), failure(LOST, 0, "b")], 1.0),
        ([failure(LOST, HALF_LIFE, "a"), failure(LOST, 0, "b")], 1.5),
        ([failure(CRASH, 0, "a", 1), failure(CRASH, 0, "a", 2)], 0.5),
        ([failure(CRASH, HALF_LIFE, "a", 1), failure(CRASH, 0, "a", 2)], 0.5),
        ([failure(CRASH, 0, "a"), failure(CRASH, 0, "b"), failure(CRASH, 0, "c")], 1.5),
    ],
    ids=[
        "nothing",
        "lost",
        "a bad condition",
        "refused a pod",
        "a crash",
        "half a life ago",
        "two half lives ago",
        "by a clock that is ahead",
        "lost once, with two jobs on it",
        "the gravest of one event",
        "lost twice",
        "one job that crashes counts once",
        "and its newest crash at that",
        "three jobs crash",
    ],
)
def test_the_score(failures: list[NodeFailure], expected: float) -> None:
    assert penalty.score(failures, NOW, POLICY) == pytest.approx(expected, abs=1e-3)


def test_no_job_alone_makes_a_node_avoided() -> None:
    crashes = [failure(CRASH, 0, "a", attempt) for attempt in range(1, MAX_RECENT)]
    assert penalty.score(crashes, NOW, POLICY) < POLICY.node_penalty_avoid


some_failures = st.lists(
    st.builds(
        failure,
        st.sampled_from(FailureKind),
        st.floats(0, 10 * HALF_LIFE).map(round),
        st.sampled_from("abcdef"),
        st.integers(1, 6),
    ),
    max_size=30,
)


@given(some_failures, some_failures, st.randoms())
def test_neither_order_nor_repetition_matters(one, two, random) -> None:
    # An attempt ends once, whoever tells of it: give each the time of its first mention.
    times = {}
    every = [
        each.model_copy(update={"time": times.setdefault((each.job_uid, each.attempt), each.time)})
        for each in (*one, *two)
    ]
    shuffled = [*every, *every]
    random.shuffle(shuffled)
    once = penalty.merge((), every, NOW, POLICY)
    other: tuple[NodeFailure, ...] = ()
    for each in shuffled:
        other = penalty.merge(other, (each,), NOW, POLICY)
    assert once == other
    assert penalty.score(once, NOW, POLICY) == penalty.score(other, NOW, POLICY)


@given(some_failures, st.floats(0, 20 * HALF_LIFE))
def test_without_new_failures_the_score_only_falls_by_half_each_half_life(failures, later) -> None:
    recent = penalty.merge((), failures, NOW, POLICY)
    before, after = (penalty.score(recent, t, POLICY) for t in (NOW, NOW + later))
    assert after == pytest.approx(before * 2 ** (-later / HALF_LIFE))


def test_what_is_remembered_is_bounded_and_the_newest() -> None:
    many = [failure(CRASH, ago, f"j{ago}") for ago in range(3 * MAX_RECENT)]
    kept = penalty.merge((), many, NOW, POLICY)
    assert [each.job for each in kept] == [f"team/j{ago}" for ago in range(MAX_RECENT)]


def test_a_crash_that_was_the_loss_of_the_node_becomes_one() -> None:
    crash, loss = failure(CRASH), failure(LOST)
    for order in ([crash, loss], [loss, crash]):
        assert [each.kind for each in penalty.merge((), order, NOW, POLICY)] == [LOST]


def health(name: str, *failures: NodeFailure, **of_node: str) -> NodeHealthView:
    status = penalty.add(None, node(name, **of_node), failures, NOW, POLICY)
    return NodeHealthView(name, "uid", "1", status)


def test_what_an_administrator_sees() -> None:
    status = health(
        "n1", failure(LOST, 9_000), failure(CRASH, 0, "b"), failure(LOST, 1, "c")
    ).status
    assert (status.score, status.count, status.avoided) == (2.43, 3, True)
    assert status.failures == {"crash": 1, "nodeLost": 2}
    assert status.last_failure is not None
    assert status.last_failure.job == "team/b"


def test_a_node_that_was_replaced_begins_anew() -> None:
    known = health("n1", failure(LOST), system_uuid="m1")
    same, other = node("n1", system_uuid="m1"), node("n1", system_uuid="m2")
    new = node("n1", uid="uid-new", system_uuid="m1")
    assert penalty.scores([known], {"n1": same}, NOW, POLICY)
    for replaced in (other, new):
        assert not penalty.scores([known], {"n1": replaced}, NOW, POLICY)
        later = failure(CRASH, 0, "b")
        assert penalty.add(known, replaced, [later], NOW, POLICY).recent == (later,)
        assert [each.status for each in penalty.upkeep([known], {"n1": replaced}, NOW, POLICY)] == [
            None
        ]


def test_upkeep_shows_what_has_decayed_and_deletes_what_is_forgotten() -> None:
    known, nodes = health("n1", failure(LOST)), {"n1": node("n1")}
    assert not penalty.upkeep([known], nodes, NOW + 60, POLICY)
    (shown,) = penalty.upkeep([known], nodes, NOW + HALF_LIFE, POLICY)
    assert shown.status is not None
    assert (shown.status.score, shown.status.recent) == (0.5, known.status.recent)
    current = replace(known, status=shown.status)
    assert not penalty.upkeep([current], nodes, NOW + HALF_LIFE + 60, POLICY)
    (gone,) = penalty.upkeep([current], nodes, NOW + 5 * HALF_LIFE, POLICY)
    assert gone.status is None
    assert not penalty.upkeep([known], {}, NOW + 5 * HALF_LIFE, POLICY)


def test_upkeep_writes_a_few_times_at_most_while_a_score_decays() -> None:
    failures = [failure(LOST, 1_000 * each, f"j{each}") for each in range(10)]
    known, nodes, writes = health("n1", *failures), {"n1": node("n1")}, 0
    now = NOW
    while True:
        now += 300
        wanted = penalty.upkeep([known], nodes, now, POLICY)
        if wanted and wanted[0].status is None:
            break
        if wanted:
            writes += 1
            known = replace(known, status=wanted[0].status)
    assert writes <= 4 * len(failures)
