"""Case 14: what is over stays over, whatever Kueue's retention or a person deletes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from goodput_sandbox.operator_process import stop_operator
from tests.integration.cluster import Tenant
from tests.integration.kueue.conftest import WORKLOADS, Kueue

COMPLETE = {"sandbox.goodput.dev/complete-after": "1s"}
CRASH = {"sandbox.goodput.dev/fail-exit-code": "3", "sandbox.goodput.dev/fail-after": "1s"}
OUTCOMES = {"good": "Complete", "bad": "Failed"}
QUIET_SECONDS = 3


@pytest.mark.parametrize("how", ["retention", "by hand"])
def test_case_14_terminal_states_absorb(
    tenant: Tenant, kueue: Kueue, operator: Callable[[], None], how: str
) -> None:
    if how == "retention":
        kueue.configure(objectRetentionPolicies={"workloads": {"afterFinished": "1s"}})
    tenant.nodes(4)
    tenant.queue(4)
    tenant.submit("good", annotations=COMPLETE)
    tenant.submit("bad", annotations=CRASH, faultTolerance={"maxCrashRestarts": 0})
    for job, outcome in OUTCOMES.items():
        tenant.wait(job, outcome, 40)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
    if how == "by hand":
        tenant.sandbox.kubectl("delete", WORKLOADS, "--all", "-n", tenant.name)
    tenant.eventually(lambda: tenant.get(WORKLOADS) == [], "Workloads deleted", 20)
    before = {job: tenant.status(job) for job in OUTCOMES}
    for kind in ("services", "pods", "secrets", "configmaps"):
        tenant.sandbox.kubectl("delete", kind, "--all", "-n", tenant.name)
    time.sleep(QUIET_SECONDS)
    stop_operator(tenant.sandbox, kill=True)
    operator()
    for job in OUTCOMES:
        tenant.patch(job, {"activeDeadlineSeconds": 3600})  # Has it looked at again.
    time.sleep(QUIET_SECONDS)
    for kind in (WORKLOADS, "services", "pods"):
        assert tenant.get(kind) == [], kind
    for job in OUTCOMES:
        after = tenant.status(job)
        for field in ("phase", "reason", "attempt", "conditions", "completionTime", "restarts"):
            assert after.get(field) == before[job].get(field), field
