"""Case 5: Kueue's webhooks fail. What is wanted is made within a minute after they work again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.cluster import NO_RESTARTS, Tenant
from tests.integration.kueue.conftest import (
    SOON,
    WORKLOADS,
    Kueue,
    admitted_unseen,
    condition,
    is_true,
    told,
    uids,
    workload,
)

MINUTE = 60
BREAK: dict[str, Callable[[Kueue], None]] = {
    "unreachable": Kueue.misdirect,
    "HTTP 500": Kueue.break_webhooks,
    "time-out": Kueue.freeze,
}
MEND: dict[str, Callable[[Kueue], None]] = {
    "unreachable": Kueue.mend_webhooks,
    "HTTP 500": Kueue.mend_webhooks,
    "time-out": Kueue.thaw,
}


def failed_creates(tenant: Tenant) -> int:
    """Creations of Workloads that the API server has answered with an error so far."""
    log = tenant.sandbox.log("goodput-operator").read_text()
    wanted = f"create workloads.kueue.x-k8s.io in namespace {tenant.name}:"
    return sum(wanted in line and "trying again" in line for line in log.splitlines())


@pytest.mark.parametrize("how", list(BREAK))
def test_case_05_three_failed_creates_and_the_workload_is_made(
    room: Tenant, kueue: Kueue, how: str
) -> None:
    BREAK[how](kueue)
    job = room.submit()
    message = told(room, job, "WebhookFailing", "APIError")
    assert "webhook" in message
    assert "see that" in message, "the remedy"
    room.eventually(lambda: failed_creates(room) >= 3, "three failed creates", 90)
    assert "kb.io" in told(room, job, "WebhookFailing")
    assert room.get(WORKLOADS) == []
    MEND[how](kueue)
    room.wait(job, "Running", MINUTE)
    workload(room, job)


def test_a_webhook_that_fails_while_ranks_start_does_not_hide_that_they_run(
    room: Tenant, kueue: Kueue, operator: Callable[[], None]
) -> None:
    """Kueue cannot be told that the ranks are ready; they are all the same."""
    job = admitted_unseen(room)
    kueue.misdirect()
    operator()
    room.wait(job, "Running", reason="AllRanksReady", ready="2/2")
    room.eventually(lambda: "kb.io" in condition(room, job)["message"], "the trouble is told")
    assert condition(room, job)["status"] == "True"
    pods = uids(room, job)
    kueue.mend_webhooks()
    room.eventually(lambda: is_true(workload(room, job), "PodsReady"), "PodsReady", SOON)
    room.eventually(lambda: "kb.io" not in condition(room, job)["message"], "all is well")
    assert uids(room, job) == pods
    assert room.status(job)["restarts"] == NO_RESTARTS
