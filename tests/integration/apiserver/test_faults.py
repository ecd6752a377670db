"""An API server that is slow, throttles, fails or breaks off: jobs wait or go on.

In each test two jobs run. Something happens to one of them behind the operator's back; the other
is not touched, and nothing is counted that did not happen (``conftest.stage``).
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Stage
from tests.integration.apiserver.faults import Watch
from tests.integration.cluster import NO_RESTARTS

HOLD = 8
"""Seconds for which a fault holds that nothing gets past."""
SOON = 30
"""Seconds within which things are right again; the machine may be loaded."""


def test_a_slow_api_server_makes_things_slow_and_no_more(stage: Stage) -> None:
    stage.proxy.set(latency=2)
    stage.delete_pod()
    stage.restarted(timeout=90)
    assert stage.proxy.seen()["write"]


def test_throttled_requests_are_repeated_when_the_server_asks_for_it(stage: Stage) -> None:
    stage.proxy.set(code=429, share=0.4, retry_after="1")
    stage.tenant.patch(stage.job, {"suspend": True})
    stage.tenant.submit("new", replicas=2)
    stage.tenant.wait(stage.job, "Suspended", timeout=90)
    stage.tenant.wait("new", "Running", timeout=90, ready="2/2")
    assert stage.proxy.seen()["code"] > 5
    for job in (stage.job, "new"):
        assert stage.tenant.status(job)["restarts"] == NO_RESTARTS
        assert stage.tenant.status(job)["attempt"] == 1


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param({"code": 429}, id="throttled"),
        pytest.param({"code": 500}, id="500", marks=pytest.mark.extended),
        pytest.param({"code": 502}, id="502, not even JSON", marks=pytest.mark.extended),
        pytest.param({"code": 503, "retry_after": "2"}, id="503", marks=pytest.mark.extended),
    ],
)
def test_a_node_that_is_lost_while_all_requests_fail_is_noticed_afterwards(
    stage: Stage, faults: dict[str, Any]
) -> None:
    stage.proxy.set(watch=Watch.RESET, **faults)
    lost = stage.lose_node()
    stage.hold(HOLD)
    assert stage.proxy.seen()["code"]
    stage.proxy.set()
    stage.restarted(SOON, lost)


@pytest.mark.parametrize(
    "watch",
    [
        Watch.RESET,
        pytest.param(Watch.GONE, marks=pytest.mark.extended),
        pytest.param(Watch.GONE_STATUS, marks=pytest.mark.extended),
        pytest.param(Watch.FAILED, marks=pytest.mark.extended),
        Watch.CUT,
    ],
)
def test_case_23_broken_watches_are_resumed(stage: Stage, watch: Watch) -> None:
    stage.proxy.set(watch=watch)
    time.sleep(3)
    stage.tenant.submit("new", replicas=1)
    time.sleep(HOLD - 3)
    seen = stage.proxy.seen()
    assert seen[watch]
    assert seen["watch"] < 15 * HOLD, "it does not hammer an API server that is in trouble"
    stage.proxy.set()
    stage.tenant.wait("new", "Running", SOON)
    lost = stage.lose_node()
    stage.restarted(SOON, lost)


def test_case_23_what_is_deleted_between_two_watches_is_noticed(stage: Stage) -> None:
    """No event tells of it: the watch before cannot go on, and the list after has it no more."""
    stage.proxy.set(watch=Watch.GONE, code=503)
    time.sleep(1)
    lost = stage.delete_node()
    stage.hold(HOLD)
    stage.proxy.set()
    stage.restarted(SOON, lost)


def test_lists_that_are_cut_off_are_not_believed(stage: Stage) -> None:
    stage.proxy.set(cut_lists=True, watch=Watch.GONE)
    stage.hold(HOLD)
    assert stage.proxy.seen()["cut-list"]
    stage.hold(1, stage.bystander)
    lost = stage.lose_node()
    stage.proxy.set()
    stage.restarted(SOON, lost)
