"""Plays a story with an operator that dies before one write, and tells how it ended."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Tenant
from tests.integration.conftest import OUT
from tests.integration.killed.killing_operator import KILLED
from tests.integration.killed.lanes import Lane, Nursery
from tests.integration.killed.stories import PATIENCE, Story
from tests.integration.record import Record
from tests.integration.transitions import Transition

AT_ONCE = 8
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Outcome:
    """What a user sees in the end, and what the operator did for it."""

    phase: str
    attempt: int
    restarts: dict[str, int]
    live_pods: tuple[str, ...]
    gpus: int

    pods_made: dict[str, int]
    workloads_made: dict[str, int]
    """Of each name that ever was, how many objects of it."""
    placements: dict[int, set[str]]
    """Of each attempt, the times at which it was placed."""
    transitions: Counter[Transition]

    killed: bool
    writes: dict[str, int]


class Runs:
    """Runs that go on at the same time, each in a lane."""

    def __init__(
        self, sandbox: Sandbox, record: Record, settings: dict[str, str], folder: Path
    ) -> None:
        self._sandbox, self._record, self._folder = sandbox, record, folder
        self._nursery = Nursery(sandbox, settings, folder)
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._lane = threading.local()
        self._lanes: list[Lane] = []
        self._begun: dict[tuple[str, str | None], Future[Outcome]] = {}

    def begin(self, story: Story, before: str | None = None) -> Future[Outcome]:
        """The run of a story that dies before a write (``create pods 2``), if any; once."""
        key = (story.name, before)
        if key not in self._begun:
            self._begun[key] = self._pool.submit(self._run, story, before)
        return self._begun[key]

    def close(self) -> None:
        """Wait for all that has begun, and clean up."""
        self._pool.shutdown(cancel_futures=True)
        for lane in self._lanes:
            lane.close()
        self._nursery.close()

    def _run(self, story: Story, before: str | None) -> Outcome:
        lane: Lane = getattr(self._lane, "mine", None) or self._open()
        try:
            return self._play(lane, story, before)
        except BaseException:
            # What is left of it must not be the next run's trouble.
            self._lane.mine = None
            told = re.sub(r"\W+", "_", f"killed {story.name} {before or 'never'}")
            self._sandbox.collect_logs(OUT / told)
            raise

    def _open(self) -> Lane:
        name = f"killed{next(_numbers)}"
        lane = Lane(self._sandbox, self._nursery, self._folder, name)
        self._lanes.append(lane)
        self._lane.mine = lane
        return lane

    def _play(self, lane: Lane, story: Story, before: str | None) -> Outcome:
        tenant, job = lane.tenant, f"job{next(_numbers)}"
        log = self._folder / f"{job}.writes"
        lane.set_up(story.nodes)
        story.prepare(tenant, job)
        lane.order(log, before)
        story.disturb(tenant, job)
        self._settle(tenant, story, job)
        status, gpus = tenant.status(job), tenant.used_gpus()
        live = tuple(sorted(pod["metadata"]["name"] for pod in tenant.pods(job)))
        lane.clear(job)
        seen, mine = self._record, (tenant.name, job)
        tenant.eventually(lambda: seen.deleted(*mine), "recorded to the end", PATIENCE)
        lines = log.read_text().splitlines()
        return Outcome(
            phase=status["phase"],
            attempt=status["attempt"],
            restarts=status["restarts"],
            live_pods=tuple(name.removeprefix(f"{job}-") for name in live),
            gpus=gpus,
            pods_made=_without(job, seen.made("pods", *mine)),
            workloads_made=seen.made("workloads", *mine),
            placements=seen.placements(*mine),
            transitions=seen.transitions_of(*mine),
            killed=KILLED in lines,
            writes=dict(Counter(each.rpartition(" ")[0] for each in lines if each != KILLED)),
        )

    @staticmethod
    def _settle(tenant: Tenant, story: Story, job: str) -> None:
        tenant.wait(job, story.phase, PATIENCE, attempt=story.attempt)
        tenant.eventually(lambda: tenant.used_gpus() == story.gpus, "quota", PATIENCE)
        if story.phase != "Suspended":
            last = "Finished" if story.phase == "Complete" else "PodsReady"
            tenant.eventually(lambda: _is_true(tenant, last), f"Workload {last}", PATIENCE)


def _without(job: str, names: dict[str, int]) -> dict[str, int]:
    return {name.removeprefix(f"{job}-"): count for name, count in names.items()}


def _is_true(tenant: Tenant, type_: str) -> bool:
    return any(
        (condition["type"], condition["status"]) == (type_, "True")
        for workload in tenant.get("workloads")
        for condition in workload.get("status", {}).get("conditions", [])
    )
