"""Takes one key at a time: snapshot, decide, execute. One worker, so one writer."""

import asyncio
import contextlib
import logging
import time
from typing import Protocol

from goodput_operator.domain.model import JobKey, JobView, Refusal
from goodput_operator.domain.plan import Plan
from goodput_operator.domain.policy import Policy
from goodput_operator.domain.reconcile import decide
from goodput_operator.kube.errors import ApiError, Conflict
from goodput_operator.logs import job_context
from goodput_operator.runtime.executor import Executor
from goodput_operator.runtime.queue import WorkQueue
from goodput_operator.runtime.store import Store

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Counts what the worker does."""

    def reconciled(self, seconds: float, waited: float) -> None:
        """A key was worked on for so long, after it had been due for so long."""

    def failed(self, kind: str) -> None:
        """Working on a key ended in an error of this kind."""


class Worker:
    """The only writer of TrainingJobs and their children."""

    def __init__(
        self,
        store: Store,
        queue: WorkQueue[JobKey],
        executor: Executor,
        policy: Policy,
        watcher: Watcher,
    ) -> None:
        self._store = store
        self._queue = queue
        self._executor = executor
        self._policy = policy
        self._watcher = watcher
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._began_at = 0.0

    @property
    def busy_seconds(self) -> float | None:
        """For how long it has been at the same key; None while it is at none."""
        return None if self._idle.is_set() else time.monotonic() - self._began_at

    async def drain(self, seconds: float) -> None:
        """Begin nothing new, and wait so long for what has begun."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    async def run(self) -> None:
        """Work until drained or cancelled."""
        while True:
            key, waited = await self._queue.get()
            if self._stopping:
                return
            self._idle.clear()
            self._began_at = time.monotonic()
            try:
                await self._take(key, waited)
            finally:
                self._idle.set()

    async def _take(self, key: JobKey, waited: float) -> None:
        job = self._store.job(key)
        if job is None:
            self._queue.forget(key)
            return
        began = time.monotonic()
        with job_context(key, job.status.attempt):
            await self._work(job)
        self._watcher.reconciled(time.monotonic() - began, waited)

    async def _work(self, job: JobView) -> None:
        try:
            await self._carry_out(job)
        except Exception:
            # A bug must not stop the other jobs.
            self._watcher.failed("bug")
            delay = self._queue.failed(job.key)
            log.exception("bug; trying again in %.1f s", delay)

    async def _carry_out(self, job: JobView) -> None:
        plan = self._decide(job.key)
        if plan.actions:
            log.debug("plan: %s", plan)
        try:
            await self._executor.execute(job, plan)
        except Conflict as error:
            log.debug("decided on what has changed since: %s", error)
            self._watcher.failed(error.kind)
            self._queue.failed(job.key)
            await self._executor.refresh(job)
        except ApiError as error:
            self._watcher.failed(error.kind)
            delay = self._queue.failed(job.key)
            log.warning("%s; trying again in %.1f s", error, delay)
            await self._show(job, error)
        else:
            self._finished(job.key, plan)

    def _decide(self, key: JobKey) -> Plan:
        return decide(self._store.snapshot(), key, time.time(), self._policy)

    def _finished(self, key: JobKey, plan: Plan) -> None:
        self._queue.succeeded(key)
        if self._store.error(key) is not None and not plan.commit:
            self._store.set_error(key, None)
            self._queue.add(key)
        if plan.commit:
            self._queue.add(key)
        if plan.requeue_after is not None:
            self._queue.add(key, plan.requeue_after)

    async def _show(self, job: JobView, error: ApiError) -> None:
        """Let the job's conditions say what is refused, so that nobody has to read our log."""
        text = f"{error}; {error.remedy}" if error.remedy else str(error)
        refusal = Refusal(text, error.reason)
        if self._store.error(job.key) == refusal:
            return
        self._store.set_error(job.key, refusal)
        plan = self._decide(job.key)
        current = self._store.job(job.key)
        if plan.status is None or plan.commit or current is None:
            return
        try:
            await self._executor.write_status(current, plan.status)
        except ApiError as second:
            log.warning("its status was not written either: %s", second)
            self._store.set_error(job.key, None)
