"""The checkpoint interval: Young's, from measured saves and from what the cluster has seen."""

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.spec import IntervalPolicy
from goodput_operator.api.status import DurableCheckpoint
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain import interval
from goodput_operator.domain.model import JobKey
from goodput_operator.progress.merge import Reported, merge
from goodput_operator.progress.report import Report
from tests.unit.domain.world import World, job_spec

DAY = 86_400.0


@pytest.mark.parametrize(
    ("nodes", "stall", "seconds"),
    [(128, 60, 3530), (2048, 60, 883), (2048, 300, 1973)],
    ids=["128 nodes", "2,048 nodes", "2,048 nodes, slow saves"],
)
def test_young_at_the_rate_of_a_known_cluster(nodes: int, stall: float, seconds: float) -> None:
    """Check values at 6.5e-3 failures per node-day."""
    assert interval.young(stall, DAY / (6.5e-3 * nodes)) == pytest.approx(seconds, abs=1)


@given(st.floats(0.001, 1e5), st.floats(1, 1e9))
def test_young_never_exceeds_the_mean_time_to_failure(stall: float, mean: float) -> None:
    found = interval.young(stall, mean)
    assert 0 < found <= mean
    assert found <= sqrt(2 * stall * mean) * (1 + 1e-12)


def auto(replicas: int = 2, **checkpoint: Any) -> Any:
    options = {"uri": "gs://bucket/runs", "intervalPolicy": "Auto", **checkpoint}
    return job_spec(replicas=replicas, checkpoint=options)


def running(spec: Any = None) -> tuple[World, JobKey]:
    world = World()
    world.add_nodes(*(f"n{i}" for i in range(8)))
    key = world.submit(spec=spec or auto())
    world.run(key)
    return world, key


def saved(world: World, key: JobKey, step: int, mean: float | None) -> None:
    job = world.jobs[key]
    durable = DurableCheckpoint(
        step=step,
        attempt=1,
        saved_at=format_micro_time(world.now),
        stall_seconds=mean,
        mean_stall_seconds=mean,
    )
    world.jobs[key] = replace(job, status=job.status.model_copy(update={"checkpoint": durable}))
    world.run(key)


def test_until_a_save_was_measured_the_specs_interval_holds() -> None:
    world, key = running(auto(intervalSeconds=45))
    assert interval.published(world.jobs[key]) == 45
    saved(world, key, 10, None)
    assert interval.published(world.jobs[key]) == 45


def test_the_prior_alone_gives_the_first_interval_and_says_where_it_came_from() -> None:
    world, key = running()
    saved(world, key, 10, 30.0)
    found = world.job(key).checkpoint_interval
    mean = DAY / (6.5e-3 * 2)
    assert found.mean_seconds_to_failure == pytest.approx(mean, rel=0.01)
    assert found.seconds == pytest.approx(sqrt(2 * 30 * mean), rel=0.01)
    assert (found.failures, found.node_hours, found.stall_seconds) == (0, 0.0, 30.0)
    assert interval.published(world.jobs[key]) == found.seconds


def test_changes_under_a_fifth_are_not_published() -> None:
    world, key = running()
    saved(world, key, 10, 30.0)
    first = world.job(key).checkpoint_interval
    saved(world, key, 20, 38.0)
    assert world.job(key).checkpoint_interval == first
    saved(world, key, 30, 60.0)
    assert world.job(key).checkpoint_interval.seconds > 1.2 * first.seconds


def test_what_the_cluster_has_seen_outweighs_the_prior() -> None:
    """Many jobs on one cluster that loses a node a day of ten: all of them save more often."""
    world, key = running()
    other = world.submit("other")
    world.run(other)
    job = world.jobs[other]
    lived = {
        "node_seconds": 1000 * DAY,
        "restarts": job.status.restarts.model_copy(update={"infrastructure": 100}),
    }
    world.jobs[other] = replace(job, status=job.status.model_copy(update=lived))
    saved(world, key, 10, 30.0)
    found = world.job(key).checkpoint_interval
    assert found.mean_seconds_to_failure == pytest.approx(DAY / (0.1 * 2), rel=0.15)
    assert (found.failures, found.node_hours) == (100, pytest.approx(24_000, rel=0.01))


def test_another_jobs_crashes_change_nothing_but_its_own_do() -> None:
    world, key = running()
    other = world.submit("other")
    world.run(other)

    def crashed(owner: JobKey) -> None:
        job = world.jobs[owner]
        restarts = job.status.restarts.model_copy(update={"crash": 20, "hang": 4})
        world.jobs[owner] = replace(
            job, status=job.status.model_copy(update={"restarts": restarts})
        )

    saved(world, key, 10, 30.0)
    first = world.job(key).checkpoint_interval
    crashed(other)
    saved(world, key, 20, 30.0)
    assert world.job(key).checkpoint_interval == first
    crashed(key)
    saved(world, key, 30, 30.0)
    assert world.job(key).checkpoint_interval.seconds < first.seconds / 2


def test_a_save_that_never_ends_leaves_half_of_the_time_to_train() -> None:
    world, key = running()
    saved(world, key, 10, 1e9)
    assert world.job(key).checkpoint_interval.seconds == pytest.approx(2e9)


def test_back_to_fixed_the_specs_interval_holds_again() -> None:
    world, key = running()
    saved(world, key, 10, 30.0)
    fixed = world.jobs[key].spec.checkpoint.model_copy(
        update={"interval_policy": IntervalPolicy.FIXED, "interval_seconds": 77}
    )
    world.edit(key, checkpoint=fixed)
    world.run(key)
    assert world.job(key).checkpoint_interval is None
    assert interval.published(world.jobs[key]) == 77


def test_a_loss_of_its_own_shortens_the_interval_of_the_next_attempt() -> None:
    world, key = running()
    saved(world, key, 10, 30.0)
    before = world.job(key).checkpoint_interval
    world.now += 3600
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.node_seconds) == (2, pytest.approx(2 * 3600))
    assert status.checkpoint_interval.seconds == pytest.approx(before.seconds / sqrt(2), rel=0.02)


def report(step: int, stall: float | None) -> Report:
    return Report(
        attempt=1,
        role="worker",
        rank=0,
        step=step,
        checkpoint_step=step,
        checkpoint_stall_seconds=stall,
    )


def test_one_slow_save_moves_the_mean_by_a_fifth_only() -> None:
    known, now = Reported(), "2026-01-31T08:00:00.000000Z"
    means = []
    for step, stall in ((1, 10.0), (2, 110.0), (3, None), (4, 30.0)):
        known = merge(known, report(step, stall), now).reported
        means.append(known.checkpoint.mean_stall_seconds if known.checkpoint else None)
    assert means == [10.0, 30.0, 30.0, 30.0]
