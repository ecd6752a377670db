"""Writes what the workers report to ``status.progress`` and ``status.checkpoint``."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.kube.errors import ApiError, Conflict, NotFound
from goodput_operator.kube.paths import TRAINING_JOBS
from goodput_operator.progress.merge import Reported, merge
from goodput_operator.progress.ports import ProgressClient, ProgressStore
from goodput_operator.progress.refusal import Outcome, RefusedError
from goodput_operator.progress.report import Report

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
TICK_SECONDS = 1.0
CONFLICTS = 4
"""Times in a row that somebody else may have changed the job meanwhile."""
MAX_WRITES = 8
"""Writes of coalesced progress made at the same time."""


@dataclass(slots=True)
class _Job:
    key: JobKey
    uid: str
    version: str
    """Its resourceVersion when it was first heard of."""
    wanted: Reported
    written: Reported
    due_at: float
    """When coalesced progress is written, on the monotonic clock."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Recorder:
    """One writer per job. A durable checkpoint is in the status before its report is answered;
    other progress at most every ``interval`` seconds."""

    def __init__(
        self,
        client: ProgressClient,
        store: ProgressStore,
        interval: float,
        *,
        on_applied: Callable[[Mapping[str, Any]], None] = lambda raw: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._store, self._interval = client, store, interval
        self._on_applied, self._clock, self._wall_clock = on_applied, clock, wall_clock
        self._jobs: dict[JobKey, _Job] = {}

    def __len__(self) -> int:
        """Jobs held."""
        return len(self._jobs)

    async def record(
        self, view: JobView, report: Report, on_believed: Callable[[], None] = lambda: None
    ) -> int | None:
        """Take a report over; the step of the newest checkpoint that is durably known.

        ``on_believed`` is called once it makes sense, before anything is written.
        Raises RefusedError: UNAVAILABLE when a durable step could not be written, which is then
        tried again whether or not the worker repeats it.
        """
        job = self._job(view)
        merged = merge(job.wanted, report, format_micro_time(self._wall_clock()))
        job.wanted = merged.reported
        on_believed()
        claimed = report.checkpoint_step
        if merged.durable or merged.urgent or self._is_unwritten(job, claimed):
            try:
                await self._write(job)
            except ApiError as error:
                log.warning("progress of %s was not written: %s", job.key, error)
                if self._is_unwritten(job, claimed):
                    raise RefusedError(
                        Outcome.UNAVAILABLE,
                        f"checkpointStep: {claimed} is not recorded yet: {error}",
                        retry_after=round(RETRY_SECONDS),
                    ) from error
        return job.written.checkpoint.step if job.written.checkpoint else None

    def _is_unwritten(self, job: _Job, claimed: int | None) -> bool:
        return claimed is not None and job.written.checkpoint != job.wanted.checkpoint

    def _job(self, view: JobView) -> _Job:
        job = self._jobs.get(view.key)
        if job is None or job.uid != view.uid:
            known = Reported(view.status.progress, view.status.checkpoint)
            job = _Job(
                view.key,
                view.uid,
                view.resource_version,
                known,
                known,
                self._clock() + self._interval,
            )
            self._jobs[view.key] = job
        return job

    async def _write(self, job: _Job) -> None:
        """Write what is wanted now. Raises ApiError; RefusedError when the job is gone."""
        async with job.lock:
            wanted = job.wanted
            if wanted == job.written:
                return
            job.due_at = self._clock() + min(RETRY_SECONDS, self._interval)
            try:
                raw = await self._apply(job, wanted)
            except NotFound as error:
                if self._jobs.get(job.key) is job:
                    del self._jobs[job.key]
                message = f"TrainingJob {job.key}: it was deleted"
                raise RefusedError(Outcome.GONE, message) from error
            job.written, job.due_at = wanted, self._clock() + self._interval
        self._on_applied(raw)

    async def _apply(self, job: _Job, wanted: Reported) -> Mapping[str, Any]:
        """The TrainingJob after the write. Raises ApiError: NotFound when it is gone, or when its
        name belongs to another job by now.

        The resourceVersion is what tells the two apart: on the status of a custom resource the API
        server does not compare the UID of an apply.
        """
        version = self._known_version(job)
        for _ in range(CONFLICTS):
            body = status_body(job.key, version, wanted)
            try:
                return await self._client.apply_status(
                    TRAINING_JOBS, body, c.PROGRESS_FIELD_MANAGER
                )
            except Conflict:
                version = await self._current_version(job)
        body = status_body(job.key, version, wanted)
        return await self._client.apply_status(TRAINING_JOBS, body, c.PROGRESS_FIELD_MANAGER)

    def _known_version(self, job: _Job) -> str:
        view = self._store.job(job.key)
        return view.resource_version if view is not None and view.uid == job.uid else job.version

    async def _current_version(self, job: _Job) -> str:
        raw = await self._client.get(TRAINING_JOBS, job.key.namespace, job.key.name)
        metadata = raw["metadata"]
        if metadata["uid"] != job.uid:
            raise NotFound(f"apply status of {job.key}", "the name belongs to another job")
        return str(metadata["resourceVersion"])

    async def run(self) -> None:
        """Write coalesced progress when it is due, until cancelled."""
        while True:
            await asyncio.sleep(min(TICK_SECONDS, self._interval))
            await self.flush(only_due=True)

    async def flush(self, only_due: bool = False) -> None:
        """Write what is not written yet, and forget the jobs that are gone. Logs what fails."""
        self._forget()
        now = self._clock()
        slots = asyncio.Semaphore(MAX_WRITES)

        async def write(job: _Job) -> None:
            async with slots:
                try:
                    await self._write(job)
                except (ApiError, RefusedError) as error:
                    log.warning("progress of %s was not written: %s", job.key, error)

        pending = [job for job in self._jobs.values() if job.wanted != job.written]
        await asyncio.gather(*(write(job) for job in pending if not only_due or now >= job.due_at))

    def _forget(self) -> None:
        for key, job in list(self._jobs.items()):
            view = self._store.job(key)
            if view is None or view.uid != job.uid:
                del self._jobs[key]


def status_body(key: JobKey, resource_version: str, reported: Reported) -> dict[str, Any]:
    """Body of a guarded server-side apply. Holds both fields: leaving one out would delete it."""
    status: dict[str, Any] = {}
    for name, value in (("progress", reported.progress), ("checkpoint", reported.checkpoint)):
        if value is not None:
            status[name] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": resource_version,
        },
        "status": status,
    }
