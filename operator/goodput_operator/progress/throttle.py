"""A token bucket for each sender."""

import time
from collections import OrderedDict
from collections.abc import Callable

from goodput_operator.progress.refusal import Outcome, RefusedError


class Throttle:
    """Lets each sender make ``rate`` requests per second, and ``burst`` at once.

    Remembers the ``size`` senders seen last; one that is forgotten begins with a full bucket.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        size: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._size, self._clock = rate, burst, size, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str) -> None:
        """Take one request out of the sender's bucket. Raises RefusedError when it is empty."""
        now = self._clock()
        left, since = self._buckets.pop(sender, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._buckets[sender] = (left - 1 if allowed else left, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RefusedError(
                Outcome.THROTTLED,
                f"{sender} sends more than {self._rate:g} requests per second; report less often",
                retry_after=max(1, round((1 - left) / self._rate)),
            )
