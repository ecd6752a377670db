"""What must hold at every moment of a chaos run, whatever has just gone wrong."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from tests.integration.api import Api, Object, path_of

LOOK_SECONDS = 1.0
GPU = "nvidia.com/gpu"


class Watchman:
    """Looks at everything again and again, in a thread of its own, and notes what is broken."""

    def __init__(self, api: Api, namespace: str, quota: int, half_placed_seconds: float) -> None:
        self._api, self._namespace, self._quota = api, namespace, quota
        self._patience = half_placed_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchman")
        self._half_since: dict[str, float] = {}
        self._durable: dict[str, int] = {}
        self._attempt: dict[str, int] = {}
        self._over: dict[str, str] = {}
        self.broken: list[str] = []
        """What did not hold, in the order in which it was seen."""
        self.looks = 0

    def __enter__(self) -> Watchman:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                jobs, pods = self._list("trainingjobs"), self._list("pods")
                workloads = self._list("workloads")
            except (OSError, http.client.HTTPException, AssertionError, ValueError):
                # Nobody can look while the API server is away, and nobody could have acted.
                self._half_since.clear()
                continue
            self.looks += 1
            for job in jobs:
                self._look_at(job, pods)
            self._workloads(workloads)

    def _list(self, kind: str) -> list[Object]:
        found = self._api.request("GET", str(path_of(kind, self._namespace)))
        items: list[Object] = found["items"] if found else []
        return items

    def _note(self, job: str, what: str) -> None:
        told = f"{job}: {what}"
        if told not in self.broken:
            self.broken.append(told)

    def _look_at(self, job: Object, pods: list[Object]) -> None:
        name, status = job["metadata"]["name"], job.get("status", {})
        self._steps(name, status)
        self._attempts(name, status)
        self._endings(name, status)
        self._whole(name, job, [pod for pod in pods if _job_of(pod) == name])

    def _steps(self, name: str, status: dict[str, Any]) -> None:
        """No durable step is forgotten."""
        durable = status.get("checkpoint", {}).get("step", 0)
        if durable < self._durable.get(name, 0):
            self._note(name, f"durable step went from {self._durable[name]} to {durable}")
        self._durable[name] = max(durable, self._durable.get(name, 0))
        placement, progress = status.get("placement"), status.get("progress", {})
        if placement and progress.get("attempt") == placement["attempt"]:
            resumed = progress.get("resumedFromStep", 0)
            if resumed < placement.get("resumeStep", 0):
                self._note(name, f"resumed from {resumed}, before {placement['resumeStep']}")

    def _attempts(self, name: str, status: dict[str, Any]) -> None:
        attempt = status.get("attempt", 0)
        if attempt < self._attempt.get(name, 0):
            self._note(name, f"attempt went from {self._attempt[name]} to {attempt}")
        self._attempt[name] = attempt

    def _endings(self, name: str, status: dict[str, Any]) -> None:
        """Terminal states absorb."""
        phase = status.get("phase", "")
        if name in self._over and phase != self._over[name]:
            self._note(name, f"was {self._over[name]} and became {phase}")
        if phase in ("Complete", "Failed"):
            self._over[name] = phase

    def _whole(self, name: str, job: Object, pods: list[Object]) -> None:
        """A gang is not half placed for longer than it may take to bind it."""
        placement = job.get("status", {}).get("placement")
        size = sum(role["replicas"] for role in job["spec"]["roles"])
        attempt = placement["attempt"] if placement else None
        bound = {
            (pod["metadata"]["labels"]["goodput.dev/role"], _rank(pod))
            for pod in pods
            if int(pod["metadata"]["labels"]["goodput.dev/attempt"]) == attempt
            and pod["spec"].get("nodeName")
        }
        if not 0 < len(bound) < size:
            self._half_since.pop(name, None)
            return
        since = self._half_since.setdefault(name, time.monotonic())
        if time.monotonic() - since > self._patience:
            self._note(name, f"half placed for {self._patience:.0f} s (attempt {attempt})")

    def _workloads(self, workloads: list[Object]) -> None:
        """One live Workload for each job, and no more quota in use than there is."""
        live: dict[str, list[str]] = defaultdict(list)
        used: Counter[str] = Counter()
        for workload in workloads:
            status = workload.get("status", {})
            finished = any(
                each["type"] == "Finished" and each["status"] == "True"
                for each in status.get("conditions", ())
            )
            if finished or workload["metadata"].get("deletionTimestamp"):
                continue
            owner = workload["metadata"]["ownerReferences"][0]["name"]
            live[owner].append(workload["metadata"]["name"])
            for each in (status.get("admission") or {}).get("podSetAssignments", ()):
                used[GPU] += int(each.get("resourceUsage", {}).get(GPU, 0))
        for owner, names in live.items():
            if len(names) > 1:
                self._note(owner, f"has several live Workloads: {', '.join(sorted(names))}")
        if used[GPU] > self._quota:
            self._note("queue", f"{used[GPU]} GPUs of {self._quota} are admitted")


def _job_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get("goodput.dev/job", ""))


def _rank(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["goodput.dev/rank"])
