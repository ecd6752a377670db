"""A real control plane with Kueue, and the operator beside it under its real rights."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from goodput_sandbox.operator_process import start_operator, stop_operator
from goodput_sandbox.options import SandboxOptions
from goodput_sandbox.sandbox import Sandbox
from tests.integration.api import api_of
from tests.integration.cluster import Kubectl, Tenant, sandbox_name
from tests.integration.record import Record
from tests.integration.transitions import allowed

OUT = Path(__file__).parents[2] / "out" / "failed"
SHORT = {
    "GOODPUT_HOLD_SECONDS": "5",
    "GOODPUT_NODE_GONE_SECONDS": "5",
    "GOODPUT_BIND_SECONDS": "8",
    "GOODPUT_START_SECONDS": "3",
    "GOODPUT_REQUEUE_BASE_SECONDS": "2",
    "GOODPUT_ATTRIBUTION_SECONDS": "6",
    "GOODPUT_SHRINK_SECONDS": "2",
    "GOODPUT_GROW_AFTER_SECONDS": "4",
    "GOODPUT_GROW_ROOM_SECONDS": "2",
    "GOODPUT_EXCLUSION_SECONDS": "10",
    "GOODPUT_LOG_LEVEL": "DEBUG",
}
"""Settings with which a test need not wait for minutes."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """The cluster of this test run; taken down also if the run is killed."""
    cluster = Sandbox(sandbox_name())
    cluster.up(SandboxOptions(), owner_pid=os.getpid())
    yield cluster
    api_of(cluster).close()
    cluster.down()


@pytest.fixture(scope="session")
def operator(sandbox: Sandbox, record: Record) -> Iterator[Callable[[], None]]:
    """The running operator; calling it starts the operator anew after a test has killed it."""

    def start() -> None:
        if not sandbox.processes.alive("goodput-operator"):
            start_operator(sandbox, SHORT)

    start()
    yield start
    stop_operator(sandbox)


@pytest.fixture(scope="session")
def record(sandbox: Sandbox) -> Iterator[Record]:
    """What every job of this run goes through. Case 9: it lies on the graph of the docs."""
    kept = Record(api_of(sandbox))
    yield kept
    kept.close()
    wrong = {each: n for each, n in kept.transitions().items() if not allowed(each)}
    assert not wrong, f"not on the graph of tests/integration/transitions.py: {wrong}"


@pytest.fixture
def kubectl(sandbox: Sandbox) -> Kubectl:
    """kubectl as an administrator."""
    return Kubectl(sandbox)


@pytest.fixture
def tenant(
    sandbox: Sandbox, operator: Callable[[], None], request: pytest.FixtureRequest
) -> Iterator[Tenant]:
    """A tenant of the test's own, with a running operator; gone afterwards."""
    operator()
    made = Tenant(sandbox, f"t{next(_numbers)}")
    yield made
    if getattr(request.node, "failed", False):
        folder = OUT / re.sub(r"[^\w.-]+", "_", request.node.name)
        sandbox.collect_logs(folder)
        print(f"logs and objects are in {folder}")
    sandbox.kubectl("delete", "trainingjobs", "--all", "-n", made.name, "--wait=false")
    sandbox.kubectl("delete", "namespace", made.name, "--wait=false", "--ignore-not-found")
    names = [n for n in sandbox.kubectl("get", "nodes", "-o", "name").split() if made.name in n]
    mine = [n.removeprefix("node/") for n in names if n.startswith(f"node/{made.name}-")]
    if mine:
        sandbox.simulated.delete(*mine)


@pytest.fixture
def restart_operator(
    sandbox: Sandbox, operator: Callable[[], None], tenant: Tenant
) -> Iterator[Callable[[dict[str, str]], None]]:
    """Runs the operator of all tests with further settings, until the test is over."""

    def restart(settings: dict[str, str]) -> None:
        stop_operator(sandbox)
        start_operator(sandbox, {**SHORT, **settings})

    yield restart
    stop_operator(sandbox)
    operator()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let fixtures know whether their test has failed."""
    outcome = yield
    if outcome.get_result().failed:  # type: ignore[attr-defined]
        item.failed = True  # type: ignore[attr-defined]
