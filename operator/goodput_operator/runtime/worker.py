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
from goodput_operator.runtime.queue import RETRY_MAX, WorkQueue
from goodput_operator.runtime.store import Store

log = logging.getLogger(__name__)

CONFLICT_TRIES = 10
"""How often a decision that was overtaken is made anew before its job has to wait."""
CONFLICT_RETRY_MAX = 1.0
"""Seconds that it waits then, at most: the server is well, somebody else only writes a lot."""

TRANSIENT_RETRY_MAX = 10.0
"""Seconds between tries of what was not answered: soon after the trouble is over, all is right."""
HANGING_SECONDS = 5.0
"""A plan that takes longer is shown as one that hangs. A webhook may take 30 s to fail."""


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

    async def _carry_out(self, job: JobView, tries: int = CONFLICT_TRIES) -> None:
        """Decide and execute; anew and at once, so many times, on what has changed meanwhile.

        Somebody who writes to the job all the time must not keep it from starting: a watch tells
        of each change too late for the next write to be the first on it.
        """
        plan = self._decide(job.key)
        if plan.actions:
            log.debug("plan: %s", plan)
        try:
            await self._execute(job, plan)
        except Conflict as error:
            log.debug("decided on what has changed since: %s", error)
            self._watcher.failed(error.kind)
            if tries == 0:
                self._queue.failed(job.key, CONFLICT_RETRY_MAX)
            await self._executor.refresh(job)
            newest = self._store.job(job.key)
            if tries and newest is not None:
                await self._carry_out(newest, tries - 1)
        except ApiError as error:
            self._watcher.failed(error.kind)
            longest = TRANSIENT_RETRY_MAX if error.transient else RETRY_MAX
            delay = self._queue.failed(job.key, longest)
            log.warning("%s; trying again in %.1f s", error, delay)
            await self._show(job, error)
        else:
            self._finished(job.key, plan)

    async def _execute(self, job: JobView, plan: Plan) -> None:
        """Carry it out. If it hangs, the job says so, unless it already tells of some trouble."""
        task = asyncio.ensure_future(self._executor.execute(job, plan))
        try:
            done, _ = await asyncio.wait({task}, timeout=HANGING_SECONDS)
            if not done and plan.actions and self._store.error(job.key) is None:
                await self._show(job, Hanging(self._executor.doing))
            await task
        finally:
            task.cancel()

    def _decide(self, key: JobKey) -> Plan:
        return decide(self._store.snapshot(), key, time.time(), self._policy)

    def _finished(self, key: JobKey, plan: Plan) -> None:
        self._queue.succeeded(key)
        error = self._store.error(key)
        if error is not None and not error.final and not plan.commit:
            self._store.set_error(key, None)
            self._queue.add(key)
        if plan.commit:
            self._queue.add(key)
        if plan.requeue_after is not None:
            self._queue.add(key, plan.requeue_after)

    async def _show(self, job: JobView, error: ApiError) -> None:
        """Let the job's conditions say what is refused, so that nobody has to read our log."""
        text = f"{error}; {error.remedy}" if error.remedy else str(error)
        self._store.set_error(job.key, Refusal(text, error.reason, error.transient, error.final))
        plan = self._decide(job.key)
        current = self._store.job(job.key)
        if plan.commit or current is None:
            return
        try:
            if plan.status is not None:
                await self._executor.write_status(current, plan.status)
            await self._executor.tell(current, plan.events)
        except ApiError as second:
            log.warning("its status was not written either: %s", second)


class Hanging(ApiError):  # noqa: N818 - beside the other refusals
    """A request has not come to an end yet."""

    kind = "transient"
    transient = True
    remedy = (
        "the API server is slow, or an admission webhook that it asks hangs (for Workloads, that "
        "is Kueue's: see that Kueue runs); it is tried again by itself"
    )

    def __init__(self, attempted: str) -> None:
        super().__init__(attempted, f"not done within {HANGING_SECONDS:.0f} s")
