"""How often a sender may come."""

import pytest

from goodput_operator.progress.refusal import RefusedError
from goodput_operator.progress.throttle import Throttle
from tests.unit.progress.fakes import Clock


def test_burst_then_rate() -> None:
    clock = Clock()
    throttle = Throttle(rate=2, burst=3, clock=clock)
    for _ in range(3):
        throttle.take("a")
    with pytest.raises(RefusedError, match="more than 2 requests") as refused:
        throttle.take("a")
    assert refused.value.status == 429
    assert refused.value.retry_after == 1
    throttle.take("b")
    clock.now += 0.5
    throttle.take("a")
    with pytest.raises(RefusedError):
        throttle.take("a")


def test_senders_remembered_are_bounded() -> None:
    throttle = Throttle(rate=1, burst=1, size=2, clock=Clock())
    for sender in ("a", "b", "c"):
        throttle.take(sender)
    throttle.take("a")
    with pytest.raises(RefusedError):
        throttle.take("c")
