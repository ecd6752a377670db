"""Plays a story with an operator of its own that dies at one write, and tells how it ended."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from goodput_sandbox.options import REPOSITORY
from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Kubectl, Tenant
from tests.integration.json_stream import objects
from tests.integration.killed.stories import JOB, PATIENCE, Story

AT_ONCE = 4
WORKLOADS = "workloads.kueue.x-k8s.io"
MODULE = "tests.integration.killed.killing_operator"
_numbers = itertools.count(1)
_building = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """What a user sees in the end, and what the operator did for it."""

    phase: str
    attempt: int
    restarts: dict[str, int]
    live_pods: tuple[str, ...]
    pods_made: dict[str, int]
    """Of each pod name that ever was, how many objects of it."""
    workloads: int
    gpus: int

    killed: bool
    writes: dict[str, int]


class Runs:
    """Runs that go on at the same time, each in a namespace with an operator of its own."""

    def __init__(self, sandbox: Sandbox, settings: dict[str, str], folder: Path) -> None:
        self._sandbox, self._settings, self._folder = sandbox, settings, folder
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._begun: dict[tuple[str, str | None], Future[Outcome]] = {}

    def begin(self, story: Story, before: str | None = None) -> Future[Outcome]:
        """The run of a story that dies before a write (``create pods 2``), if any; once."""
        key = (story.name, before)
        if key not in self._begun:
            self._begun[key] = self._pool.submit(self._run, story, before)
        return self._begun[key]

    def close(self) -> None:
        """Wait for all that has begun."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, story: Story, before: str | None) -> Outcome:
        with _building:
            tenant = Tenant(self._sandbox, f"killed{next(_numbers)}")
        armed, log = (self._folder / f"{tenant.name}.{end}" for end in ("armed", "log"))
        log.touch()
        try:
            with self._pods_of(tenant) as made, self._operator(tenant, armed, log, before):
                story.prepare(tenant)
                armed.touch()
                story.disturb(tenant)
                self._settle(tenant, story)
            return self._tell(tenant, made, log)
        finally:
            self._clear(tenant)

    @staticmethod
    def _settle(tenant: Tenant, story: Story) -> None:
        tenant.wait(JOB, story.phase, PATIENCE, attempt=story.attempt)
        tenant.eventually(lambda: tenant.used_gpus() == story.gpus, "quota", PATIENCE)
        if story.phase != "Suspended":
            last = "Finished" if story.phase == "Complete" else "PodsReady"
            tenant.eventually(lambda: _is_true(tenant, last), f"Workload {last}", PATIENCE)

    def _tell(self, tenant: Tenant, made: Counter[str], log: Path) -> Outcome:
        status = tenant.status(JOB)
        lines = log.read_text().splitlines()
        return Outcome(
            phase=status["phase"],
            attempt=status["attempt"],
            restarts=status["restarts"],
            live_pods=tuple(sorted(pod["metadata"]["name"] for pod in tenant.pods(JOB))),
            pods_made=dict(made),
            workloads=len(tenant.get(WORKLOADS)),
            gpus=tenant.used_gpus(),
            killed="KILLED" in lines,
            writes=dict(Counter(each.rpartition(" ")[0] for each in lines if each != "KILLED")),
        )

    @contextmanager
    def _operator(
        self, tenant: Tenant, armed: Path, log: Path, before: str | None
    ) -> Iterator[None]:
        environment = {
            "PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY / 'sandbox'}:{REPOSITORY}",
            "PYTHONUNBUFFERED": "1",
            "GOODPUT_KUBECONFIG": str(self._sandbox.operator_kubeconfig()),
            "GOODPUT_WATCH_NAMESPACES": tenant.name,
            "GOODPUT_HEALTH_LISTEN": "127.0.0.1:0",
            "GOODPUT_LOG_FORMAT": "text",
            **self._settings,
            "KILLED_ARMED": str(armed),
            "KILLED_LOG": str(log),
            "KILLED_BEFORE": before or "",
        }
        name = f"operator-{tenant.name}"
        with _building:
            self._sandbox.spawn(name, [sys.executable, "-m", MODULE], environment)
        try:
            yield
        finally:
            self._sandbox.stop_process(name, kill=True)

    @contextmanager
    def _pods_of(self, tenant: Tenant) -> Iterator[Counter[str]]:
        """Counts the objects of every pod name from now on; whole when the block has ended."""
        made: Counter[str] = Counter()
        file = self._folder / f"{tenant.name}.pods"
        argv = [*Kubectl(self._sandbox).argv, "get", "pods", "-n", tenant.name, "-w"]
        argv += ["--output-watch-events", "-o", "json"]
        with file.open("w") as output, subprocess.Popen(argv, stdout=output) as watch:
            try:
                yield made
            finally:
                watch.terminate()
        for event in objects(file.read_text()):
            if event["type"] == "ADDED":
                made[event["object"]["metadata"]["name"]] += 1

    @staticmethod
    def _clear(tenant: Tenant) -> None:
        tenant.sandbox.kubectl("delete", "namespace", tenant.name, "--wait=false")
        names = tenant.sandbox.kubectl("get", "nodes", "-o", "name").split()
        mine = [n.removeprefix("node/") for n in names if n.startswith(f"node/{tenant.name}-")]
        if mine:
            tenant.sandbox.simulated.delete(*mine)


def _is_true(tenant: Tenant, type_: str) -> bool:
    return any(
        (condition["type"], condition["status"]) == (type_, "True")
        for workload in tenant.get(WORKLOADS)
        for condition in workload.get("status", {}).get("conditions", [])
    )
