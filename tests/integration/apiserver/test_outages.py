"""The API server really away for a minute, and watches that are silent for longer than that."""

from __future__ import annotations

import time

from tests.integration.apiserver.conftest import Stage, eventually_well
from tests.integration.apiserver.faults import Watch

AWAY_SECONDS = 60


def test_an_api_server_that_is_away_for_a_minute_is_caught_up_with(stage: Stage) -> None:
    tenant = stage.tenant
    pods, status = stage.uids(stage.job), tenant.status(stage.job)
    lost = str(sorted(status["placement"]["nodes"])[0])
    # It falls silent now, and is marked when it can be again.
    tenant.sandbox.simulated.kill(lost, at_once=False)
    tenant.sandbox.stop_process("kube-apiserver", kill=True)
    time.sleep(AWAY_SECONDS)
    tenant.sandbox.restart_process("kube-apiserver")
    tenant.eventually(lambda: tenant.status(stage.job), "the API server back", 60)
    assert stage.uids(stage.job) == pods
    assert tenant.status(stage.job)["attempt"] == 1
    tenant.eventually(lambda: tenant.sandbox.simulated.kill(lost) is None, "the mark", 30)
    stage.restarted(120, lost)


def test_case_23_silent_watches_are_resumed_within_70_s_and_are_no_secret(stage: Stage) -> None:
    """Connections stay open, and nothing ever comes: also when the fault is long over."""
    stage.proxy.set(watch=Watch.SILENT)
    began = time.monotonic()
    time.sleep(1)
    stage.proxy.set()
    lost = stage.lose_node()
    stage.tenant.eventually(lambda: stage.healthz() == 503, "the probe to fail", 40)
    stage.tenant.eventually(
        lambda: stage.tenant.status(stage.job)["attempt"] == 2, "a second attempt", 80
    )
    resumed = time.monotonic() - began
    print(f"resumed after {resumed:.1f} s")
    assert resumed < 70 + 2, "and 2 s in which other nodes may follow"
    stage.restarted(30, lost)
    eventually_well(stage, 70)
