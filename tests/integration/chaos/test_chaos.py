"""Twenty jobs, and everything that can go wrong at random: every job ends Complete, as it should.

The seed is printed. ``GOODPUT_CHAOS_SEED`` runs one again, ``GOODPUT_CHAOS_SECONDS`` for how long;
a seed that fails belongs into ``SEEDS``.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from goodput_sandbox.operator_process import start_operator
from tests.integration.chaos.faults import Faults
from tests.integration.chaos.invariants import Watchman
from tests.integration.chaos.trainers import Trainers
from tests.integration.cluster import Tenant
from tests.integration.conftest import SHORT
from tests.integration.record import Record

JOBS, NODES, GPUS_PER_NODE, QUOTA = 20, 16, 2, 28
SECONDS = float(os.environ.get("GOODPUT_CHAOS_SECONDS", "120"))
SETTLE_SECONDS = 240.0
"""For all jobs to be complete, once nothing goes wrong any more."""
BETWEEN_SECONDS = (1.0, 4.0)
HALF_PLACED_SECONDS = 45.0
"""Bind deadline of these tests (8 s), noticing, grace, and a loaded machine."""
SEEDS: tuple[int, ...] = ()
"""Seeds that once failed."""
TOLERANT = {"maxCrashRestarts": 1000, "crashBackoff": {"baseSeconds": 1, "maxSeconds": 4}}


def seeds() -> list[int]:
    """The seed asked for, or those to run again and a new one.

    The processes of a parallel run have to agree on it.
    """
    asked = os.environ.get("GOODPUT_CHAOS_SEED")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    fresh = random.Random(run).randrange(10**6)
    return [int(asked)] if asked else [*SEEDS, fresh]


def submit(tenant: Tenant, number: int, seeded: random.Random) -> tuple[str, int]:
    """A job like no other, and after how many steps it is done."""
    spec: dict[str, Any] = {
        "faultTolerance": {
            **TOLERANT,
            "restartScope": seeded.choice(["Gang", "Gang", "Failed"]),
        },
        "checkpoint": {"uri": "gs://bucket/runs", "gracePeriodSeconds": 1},
    }
    name = tenant.submit(f"job-{number:02d}", seeded.randint(1, 6), **spec)
    return name, seeded.randint(30, 90)


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.timeout(900)
def test_every_job_completes_whatever_goes_wrong(
    tenant: Tenant, operator: Callable[[], None], record: Record, seed: int
) -> None:
    print(f"GOODPUT_CHAOS_SEED={seed}")
    seeded = random.Random(seed)
    nodes = tenant.nodes(NODES, GPUS_PER_NODE)
    tenant.queue(QUOTA)
    totals = dict(submit(tenant, number, seeded) for number in range(JOBS))
    faults = Faults(tenant, nodes, lambda: _restart(tenant, operator), seed)
    with (
        Trainers(tenant.sandbox, tenant.api, tenant.name, totals) as trainers,
        Watchman(tenant.api, tenant.name, QUOTA, HALF_PLACED_SECONDS) as watchman,
    ):
        until = time.monotonic() + SECONDS
        try:
            while time.monotonic() < until:
                time.sleep(seeded.uniform(*BETWEEN_SECONDS))
                faults.one()
        finally:
            faults.heal()
            print(f"faults: {faults.told()}")
        _wait_for_all(tenant, totals, SETTLE_SECONDS)
    assert watchman.broken == []
    assert watchman.looks > SECONDS / 10, "it was looked at throughout"
    _check_ends(tenant, trainers, faults, record)


def _restart(tenant: Tenant, operator: Callable[[], None]) -> None:
    if not tenant.sandbox.processes.alive("goodput-operator"):
        start_operator(tenant.sandbox, SHORT)


def _wait_for_all(tenant: Tenant, totals: dict[str, int], timeout: float) -> None:
    def unfinished() -> dict[str, str]:
        jobs = {
            job["metadata"]["name"]: job.get("status", {}) for job in tenant.get("trainingjobs")
        }
        return {
            name: f"{jobs[name].get('phase')} ({jobs[name].get('reason')})"
            for name in totals
            if jobs[name].get("phase") != "Complete"
        }

    deadline = time.monotonic() + timeout
    while left := unfinished():
        assert "Failed" not in str(left), left
        assert time.monotonic() < deadline, f"after {timeout:.0f} s of peace: {left}"
        time.sleep(1)


def _check_ends(tenant: Tenant, trainers: Trainers, faults: Faults, record: Record) -> None:
    """Every job has its right final step, and each restart is charged to what has caused it."""
    for job, run in trainers.runs.items():
        status = tenant.status(job)
        assert status["progress"]["step"] == run.total, job
        assert status["checkpoint"]["step"] == run.total, job
        restarts = status["restarts"]
        assert restarts["crash"] <= faults.crashed[job], (job, restarts)
        assert restarts["hang"] == restarts["powerShed"] == 0, (job, restarts)
        twice = {n: at for n, at in record.placements(tenant.name, job).items() if len(at) > 1}
        assert not twice, f"{job}: attempt numbers used twice: {twice}"
        for kind in ("pods", "workloads"):
            again = {n: c for n, c in record.made(kind, tenant.name, job).items() if c > 1}
            assert not again, f"{job}: {kind} made twice under one name: {again}"
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back")
