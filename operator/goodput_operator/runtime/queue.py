"""A work queue that coalesces: a key is in it once, at the earliest time that was asked for."""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from goodput_operator.domain.restart import exponential

Key = TypeVar("Key", bound=Hashable)

RETRY_BASE = 0.2
RETRY_MAX = 30.0
"""Seconds between tries of a key that fails, doubled each time in a row."""
RETRY_FLOOR = 5.0
"""Seconds that a failing key waits at most before a change may have it tried again."""


class WorkQueue(Generic[Key]):
    """Keys that are due, and when the others will be. For one event loop.

    A key that is added while it is being worked on comes up again afterwards: what changed
    meanwhile may not have been seen.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Have the key come up after ``delay`` seconds, or when it already would, if earlier.

        A key that has just failed waits a little all the same: what it did succeed in makes events
        too, and must not have it fail again at their pace.
        """
        due = max(self._clock() + max(0.0, delay), self._not_before.get(key, 0.0))
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        self._changed.set()

    def failed(self, key: Key, longest: float = RETRY_MAX) -> float:
        """Try the key again, later each time in a row; the seconds until then."""
        times = self._failures[key] = self._failures.get(key, 0) + 1
        delay = exponential(RETRY_BASE, longest, times)
        self._not_before[key] = self._clock() + min(delay, RETRY_FLOOR)
        self.add(key, delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """The next failure is the first again."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop everything about a key that is gone."""
        self._due.pop(key, None)
        self.succeeded(key)

    async def get(self) -> tuple[Key, float]:
        """The next key that is due, and for how many seconds it has been; waits until one is."""
        while True:
            self._changed.clear()
            wait = self._until_next()
            if wait is not None and wait <= 0:
                due, _, key = heapq.heappop(self._heap)
                del self._due[key]
                return key, self._clock() - due
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    @property
    def depth(self) -> int:
        """How many keys are due now."""
        now = self._clock()
        return sum(1 for due in self._due.values() if due <= now)

    @property
    def overdue(self) -> float:
        """Seconds for which the oldest key has been due; 0 when none is."""
        return max(0.0, self._clock() - min(self._due.values())) if self._due else 0.0

    def _until_next(self) -> float | None:
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due:
                return due - self._clock()
            heapq.heappop(self._heap)  # It was moved to an earlier time, or forgotten.
        return None
