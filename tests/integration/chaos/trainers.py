"""Plays what trains in simulated pods: steps, checkpoints, reports by each pod's own token."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from goodput_sandbox.sandbox import Sandbox
from tests.integration.api import Api, Object, path_of

TICK_SECONDS = 1.0
STEPS_PER_TICK = 2
SAVE_EVERY = 6
"""Steps between two saves."""
AUDIENCE = "goodput.dev/progress"
COMPLETE = "sandbox.goodput.dev/complete-after"


@dataclass
class Run:
    """What one job has trained, as its checkpoint directory would hold it."""

    total: int
    attempt: int = 0
    step: int = 0
    resumed_from: int = 0
    durable: int = 0
    """Newest step that the endpoint has acknowledged as durable."""
    saved: set[int] = field(default_factory=set)
    reported: int = 0
    """Reports that were accepted."""


class Trainers:
    """Trains every job of a namespace, in a thread of its own, until it is stopped."""

    def __init__(self, sandbox: Sandbox, api: Api, namespace: str, totals: dict[str, int]) -> None:
        self._sandbox, self._api, self._namespace = sandbox, api, namespace
        self.runs = {job: Run(total) for job, total in totals.items()}
        self._tokens: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trainers")
        self._pool = ThreadPoolExecutor(8)

    def __enter__(self) -> Trainers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def _work(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                jobs = self._list("trainingjobs")
                pods = self._list("pods")
            except (OSError, http.client.HTTPException, AssertionError, ValueError):
                continue  # The API server is away; training goes on, unobserved.
            by_job: dict[str, list[Object]] = defaultdict(list)
            for pod in pods:
                labels = pod["metadata"].get("labels", {})
                by_job[labels.get("goodput.dev/job", "")].append(pod)
            list(
                self._pool.map(
                    self._tick, jobs, [by_job[each["metadata"]["name"]] for each in jobs]
                )
            )

    def _list(self, kind: str) -> list[Object]:
        found = self._api.request("GET", str(path_of(kind, self._namespace)))
        items: list[Object] = found["items"] if found else []
        return items

    def _tick(self, job: Object, pods: list[Object]) -> None:
        name, status = job["metadata"]["name"], job.get("status", {})
        run, placement = self.runs.get(name), status.get("placement")
        if run is None or placement is None or "runningAt" not in placement:
            return
        ranks = _live(pods, placement)
        size = sum(role["replicas"] for role in job["spec"]["roles"])
        if len(ranks) < size or not all(_is_running(pod) for pod in ranks.values()):
            return
        if placement["attempt"] != run.attempt:
            run.attempt = placement["attempt"]
            run.step = run.resumed_from = max(run.saved, default=0)
        run.step = min(run.total, run.step + STEPS_PER_TICK)
        fields: dict[str, Any] = {"step": run.step, "totalSteps": run.total}
        fields["resumedFromStep"] = run.resumed_from
        if run.step - run.durable >= SAVE_EVERY or run.step == run.total:
            run.saved.add(run.step)
            fields["checkpointStep"] = run.step
        if self._report(name, run, ranks["worker", 0], fields) and "checkpointStep" in fields:
            run.durable = run.step
        if run.step == run.total and run.durable == run.total:
            self._complete(ranks)

    def _complete(self, ranks: dict[tuple[str, int], Object]) -> None:
        for pod in ranks.values():
            metadata = pod["metadata"]
            if COMPLETE in metadata.get("annotations", {}):
                continue
            path = path_of("pods", metadata["namespace"], metadata["name"])
            body = {"metadata": {"uid": metadata["uid"], "annotations": {COMPLETE: "0s"}}}
            try:
                self._api.request("PATCH", str(path), body)
            except (OSError, http.client.HTTPException, AssertionError):
                return

    def _report(self, job: str, run: Run, pod: Object, fields: dict[str, Any]) -> bool:
        """Whether the report was accepted. Whatever goes wrong, the next tick tries again."""
        body = {"attempt": run.attempt, "role": "worker", "rank": 0, **fields}
        try:
            status = self._post(job, pod, body)
        except (OSError, http.client.HTTPException, AssertionError, ValueError):
            return False
        run.reported += status == http.client.OK
        return status == http.client.OK

    def _post(self, job: str, pod: Object, body: dict[str, Any]) -> int:
        port = self._sandbox.forward(
            self._sandbox.ports.operator_progress, self._sandbox.inside_address
        )
        context = ssl.create_default_context(
            cadata=pod["metadata"]["annotations"]["goodput.dev/progress-ca"]
        )
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        try:
            secured = context.wrap_socket(plain, server_hostname=self._sandbox.inside_address)
        except (OSError, ssl.SSLError):
            plain.close()
            raise
        connection = http.client.HTTPConnection(self._sandbox.inside_address)
        connection.sock = secured
        try:
            connection.request(
                "POST",
                f"/v1/namespaces/{self._namespace}/trainingjobs/{job}/progress",
                json.dumps(body),
                {"Authorization": f"Bearer {self._token(pod)}"},
            )
            return connection.getresponse().status
        finally:
            connection.close()

    def _token(self, pod: Object) -> str:
        """A token bound to the pod, as its kubelet would have asked for one."""
        uid = pod["metadata"]["uid"]
        if uid not in self._tokens:
            bound = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": pod["metadata"]["name"],
                "uid": uid,
            }
            made = self._api.request(
                "POST",
                f"/api/v1/namespaces/{self._namespace}/serviceaccounts/default/token",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"audiences": [AUDIENCE], "boundObjectRef": bound},
                },
            )
            assert made is not None, "the service account is gone"
            self._tokens[uid] = made["status"]["token"]
        return self._tokens[uid]

    def wait(self, job: str, step: int, timeout: float) -> None:
        """Until a job has trained for so many steps."""
        deadline = time.monotonic() + timeout
        while self.runs[job].step < step:
            assert time.monotonic() < deadline, f"{job} is at {self.runs[job].step} of {step}"
            time.sleep(0.2)


def _live(pods: list[Object], placement: Object) -> dict[tuple[str, int], Object]:
    """Of each rank of the live attempt the pod of its newest incarnation."""
    found: dict[tuple[str, int], Object] = {}
    for pod in sorted(pods, key=_incarnation):
        labels = pod["metadata"]["labels"]
        if labels["goodput.dev/attempt"] == str(placement["attempt"]):
            found[labels["goodput.dev/role"], int(labels["goodput.dev/rank"])] = pod
    return found


def _incarnation(pod: Object) -> int:
    return int(pod["metadata"]["labels"].get("goodput.dev/incarnation", "0"))


def _is_running(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
