"""When nodes are known to be lost, which may be long after they are."""

from typing import Any

import pytest

from goodput_operator.domain.model import Lease, NodeView
from goodput_operator.runtime.nodes import LeaseSign
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws

MARKED = 1767225600.0
"""When raws say that their nodes have changed: at the beginning of 2026."""


class Seen:
    """A store, and the time at which it is told things."""

    def __init__(self) -> None:
        self.now = MARKED
        self.store = Store(lambda key, delay=0.0: None, lambda: self.now)
        self._version = 10

    def put(self, **what: Any) -> NodeView:
        self._version += 1
        self.store.put_node(raws.node(version=self._version, **what))
        return self.store.snapshot().nodes["node-1"]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_loss_that_is_known_late_settles_from_when_it_is_known(seen: Seen) -> None:
    """As when the watch was away: the others that are lost come right after it."""
    seen.put()
    seen.now = MARKED + 60
    node = seen.put(ready=False)
    assert (node.lost_since, node.settling_since) == (MARKED, MARKED + 60)
    seen.now += 5
    assert seen.put(ready=False, unschedulable=True).settling_since == MARKED + 60


def test_a_loss_that_was_there_from_the_start_settles_too(seen: Seen) -> None:
    seen.now = MARKED + 60
    assert seen.put(ready=False).settling_since == MARKED + 60


def test_a_node_that_is_back_and_lost_again_settles_anew(seen: Seen) -> None:
    seen.put(ready=False)
    seen.now += 10
    assert seen.put().seen_lost_at is None
    seen.now += 10
    assert seen.put(ready=False).settling_since == MARKED + 20


def test_a_stale_lease_needs_no_time_to_settle(seen: Seen) -> None:
    seen.put()
    seen.now += 30
    seen.store.put_leases({"node-1": LeaseSign(Lease.STALE, MARKED + 5)})
    node = seen.store.snapshot().nodes["node-1"]
    assert node.lost
    assert node.settling_since == MARKED + 5
