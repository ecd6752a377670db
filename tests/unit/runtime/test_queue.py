"""Coalescing, delays, backoff; the clock is the test's."""

import asyncio

import pytest

from goodput_operator.runtime.queue import RETRY_BASE, RETRY_FLOOR, RETRY_MAX, WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock)


async def due(queue: WorkQueue[str]) -> list[str]:
    """All keys that are due now, in order."""
    keys = []
    while queue.depth:
        key, _ = await asyncio.wait_for(queue.get(), 1)
        keys.append(key)
    return keys


async def test_a_key_added_often_comes_up_once(queue: WorkQueue[str]) -> None:
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert await due(queue) == ["a", "b"]


async def test_the_earliest_time_asked_for_counts(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a", 10)
    queue.add("a", 3)
    queue.add("a", 20)
    clock.now += 2.9
    assert await due(queue) == []
    clock.now += 0.2
    assert await due(queue) == ["a"]
    clock.now += 100
    assert await due(queue) == []


async def test_a_key_added_while_it_is_worked_on_comes_up_again(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await due(queue) == ["a"]
    queue.add("a")
    assert await due(queue) == ["a"]


async def test_failures_in_a_row_are_tried_ever_later(queue: WorkQueue[str]) -> None:
    delays = [queue.failed("a") for _ in range(12)]
    assert delays[:3] == [RETRY_BASE, 2 * RETRY_BASE, 4 * RETRY_BASE]
    assert delays[-1] == RETRY_MAX
    queue.succeeded("a")
    assert queue.failed("a") == RETRY_BASE


async def test_a_failing_key_is_not_retried_at_the_pace_of_its_own_events(
    queue: WorkQueue[str], clock: Clock
) -> None:
    for _ in range(12):
        clock.now += queue.failed("a")
        assert await due(queue) == ["a"]
    queue.failed("a")
    queue.add("a")
    clock.now += RETRY_FLOOR - 0.1
    assert await due(queue) == []
    clock.now += 0.2
    assert await due(queue) == ["a"]


async def test_after_a_success_changes_count_at_once_again(queue: WorkQueue[str]) -> None:
    queue.failed("a")
    queue.succeeded("a")
    queue.forget("a")
    queue.add("a")
    assert await due(queue) == ["a"]


async def test_a_forgotten_key_does_not_come_up(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a")
    queue.add("b", 1)
    queue.forget("a")
    clock.now += 2
    assert await due(queue) == ["b"]


async def test_depth_and_age_count_what_is_due(queue: WorkQueue[str], clock: Clock) -> None:
    assert (queue.depth, queue.overdue) == (0, 0.0)
    queue.add("a")
    queue.add("b", 60)
    clock.now += 7
    assert (queue.depth, queue.overdue) == (1, 7.0)
    _, waited = await queue.get()
    assert waited == 7.0
    assert (queue.depth, queue.overdue) == (0, 0.0)


async def test_a_waiting_worker_is_woken_by_a_new_key(queue: WorkQueue[str]) -> None:
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    queue.add("a")
    key, _ = await asyncio.wait_for(getting, 1)
    assert key == "a"


async def test_a_failure_may_have_a_longest_wait_of_its_own(
    queue: WorkQueue[str], clock: Clock
) -> None:
    waits = [queue.failed("a", 10.0) for _ in range(20)]
    assert waits[0] == RETRY_BASE
    assert max(waits) == 10.0
