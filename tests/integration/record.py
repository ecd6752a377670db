"""All states that the jobs, pods and Workloads of a cluster go through."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.integration.api import Api, Watch, path_of
from tests.integration.transitions import Transition, transitions

KINDS = ("trainingjobs", "pods", "workloads")
JOB_LABEL = "goodput.dev/job"
AGAIN_SECONDS = 0.1
Event = dict[str, Any]


class Record:
    """Watches of each kind, one after the other, until it is closed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._over = False
        self._events: dict[str, list[list[Event]]] = {kind: [] for kind in KINDS}
        """Of each kind, of each watch: what happened between two is not known."""
        self._watches: dict[str, Watch] = {}
        self._threads = [threading.Thread(target=self._watch, args=(kind,)) for kind in KINDS]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the watches; what is recorded stays."""
        self._over = True
        for watch in self._watches.values():
            watch.close()
        for thread in self._threads:
            thread.join()

    def _watch(self, kind: str) -> None:
        path = str(path_of(kind, None))
        while not self._over:
            events: list[Event] = []
            self._events[kind].append(events)
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                self._watches[kind] = Watch(self._api, path)
                for type_, item in self._watches[kind]:
                    events.append({"type": type_, "object": _slim(kind, item)})
            time.sleep(AGAIN_SECONDS)

    def _of(self, kind: str, namespace: str, job: str) -> Iterator[list[Event]]:
        for events in list(self._events[kind]):
            yield [
                event
                for event in list(events)
                if _job_of(kind, event["object"]) == (namespace, job)
            ]

    def deleted(self, namespace: str, job: str) -> bool:
        """Whether the job's end, and so all of its life, is recorded."""
        watches = self._of("trainingjobs", namespace, job)
        return any(event["type"] == "DELETED" for events in watches for event in events)

    def made(self, kind: str, namespace: str, job: str) -> dict[str, int]:
        """Of each name of a pod or Workload of the job that ever was, how many objects of it."""
        objects = {
            (event["object"]["metadata"]["name"], event["object"]["metadata"]["uid"])
            for events in self._of(kind, namespace, job)
            for event in events
        }
        return dict(Counter(name for name, _ in objects))

    def placements(self, namespace: str, job: str) -> dict[int, set[str]]:
        """Of each attempt, when it was placed: more than one time is a number used twice."""
        found: dict[int, set[str]] = {}
        for event in (e for events in self._of("trainingjobs", namespace, job) for e in events):
            placement = event["object"].get("status", {}).get("placement")
            if placement:
                found.setdefault(placement["attempt"], set()).add(placement["committedAt"])
        return found

    def transitions_of(self, namespace: str, job: str) -> Counter[Transition]:
        """The phases and conditions that the job went through."""
        return sum(map(transitions, self._of("trainingjobs", namespace, job)), Counter())

    def transitions(self) -> Counter[Transition]:
        """Those that any job of the cluster went through."""
        return sum(map(transitions, self._events["trainingjobs"]), Counter())


def _slim(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """What is asked for; a session has tens of thousands of events."""
    kept = ("name", "namespace", "uid", "labels", "ownerReferences")
    metadata = {name: item["metadata"][name] for name in kept if name in item["metadata"]}
    return {
        "metadata": metadata,
        "status": item.get("status", {}) if kind == "trainingjobs" else {},
    }


def _job_of(kind: str, item: dict[str, Any]) -> tuple[str, str]:
    metadata = item["metadata"]
    owners = [each["name"] for each in metadata.get("ownerReferences", ())]
    job = metadata.get("labels", {}).get(JOB_LABEL) or next(iter(owners), "")
    return metadata["namespace"], metadata["name"] if kind == "trainingjobs" else job
