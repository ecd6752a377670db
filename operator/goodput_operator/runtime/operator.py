"""The parts of a running operator, put together."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

from goodput_operator.builders.progress import ProgressTarget
from goodput_operator.config import Config
from goodput_operator.domain import penalty
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import JobKey
from goodput_operator.domain.quota import held_seconds
from goodput_operator.domain.silence import find_silence
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import ApiError
from goodput_operator.metrics import Metrics
from goodput_operator.runtime.checks import keep_active
from goodput_operator.runtime.executor import Executor
from goodput_operator.runtime.foreign_watch import list_foreign, watch_foreign
from goodput_operator.runtime.kinds import Kind, list_all
from goodput_operator.runtime.leases import poll_leases
from goodput_operator.runtime.penalties import keep_penalties
from goodput_operator.runtime.queue import WorkQueue
from goodput_operator.runtime.relist import Relister
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.worker import Worker

log = logging.getLogger(__name__)

LIST_RETRY_SECONDS = 3.0


class Operator:
    """Store, queue, worker and client; it says whether it is ready, and whether it is alive."""

    def __init__(
        self, config: Config, connect: Callable[[Metrics], Coroutine[Any, Any, Client]]
    ) -> None:
        self.config = config
        self.queue: WorkQueue[JobKey] = WorkQueue(time.monotonic)
        self.store = Store(self.queue.add, bad_node_conditions=config.bad_node_conditions)
        self.metrics = Metrics(
            self.store.all_jobs,
            lambda: self.queue.depth,
            lambda: self.queue.overdue,
            self._silence,
            self._held_quota,
            self._penalties,
        )
        self.relister = Relister(self._list, self._look_at_all, config.relist_seconds)
        self.progress: ProgressTarget | None = None
        self.ready = False
        self._connect = connect
        self._namespaces = config.watch_namespaces
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._last_sign = time.monotonic()

    @property
    def client(self) -> Client:
        """The client. Raises RuntimeError before ``prime``."""
        if self._client is None:
            raise RuntimeError("the operator is not connected yet")
        return self._client

    def alive(self) -> None:
        """A stream from the API server has said something."""
        self._last_sign = time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since any stream has said something; bookmarks come once a minute."""
        return time.monotonic() - self._last_sign

    def ailment(self) -> str | None:
        """Why the process had better be restarted; None while all is well."""
        limit = self.config.liveness_seconds
        busy = self._worker.busy_seconds if self._worker else None
        if busy is not None and busy > limit:
            return f"the worker has been at the same job for {busy:.0f} s"
        if self._worker and busy is None and self.queue.overdue > limit:
            return f"the work queue has stood still for {self.queue.overdue:.0f} s"
        if self.ready and self.silence > limit:
            return f"every stream has been silent for {self.silence:.0f} s"
        return None

    def _silence(self) -> tuple[int, bool]:
        """Nodes that nobody hears from, and whether nothing is restarted for them."""
        nodes = self.store.snapshot().nodes.values()
        found = find_silence(nodes, time.time(), self.config.policy())
        return sum(node.unheard for node in nodes), found is not None

    def _held_quota(self) -> Iterator[tuple[JobKey, float]]:
        """Jobs whose quota is held for nothing, and for how long it has been."""
        snapshot, now, policy = self.store.snapshot(), time.time(), self.config.policy()
        for job in snapshot.jobs.values():
            if job.spec is not None:
                seconds = held_seconds(Context(job, job.spec, snapshot, now, policy))
                if seconds is not None:
                    yield job.key, seconds

    def _penalties(self) -> dict[str, float]:
        """Scores of the nodes that have failed jobs."""
        snapshot = self.store.snapshot()
        health = snapshot.health.values()
        return penalty.scores(health, snapshot.nodes, time.time(), self.config.policy())

    async def connect(self) -> None:
        """Make the client, once."""
        if self._client is None:
            self._client = await self._connect(self.metrics)

    async def prime(self) -> str:
        """List everything, trying until it works; where to watch the pods of others from.

        No decision is made before: what has not been listed would look as if it were not there.
        """
        while True:
            try:
                await list_all(self.client, self.store, self._namespaces)
                version = await list_foreign(self.client, self.store, self._namespaces)
            except ApiError as error:
                log.warning("%s; listing again in %.0f s", error, LIST_RETRY_SECONDS)
                await asyncio.sleep(LIST_RETRY_SECONDS)
                continue
            self.ready = True
            self.alive()
            jobs, pods = len(self.store.jobs), len(self.store.pods)
            log.info("ready: %d TrainingJobs, %d pods of theirs", jobs, pods)
            return version

    async def work(self, version: str) -> None:
        """Reconcile until cancelled, or until a part of it fails for good."""
        executor = Executor(self.client, self.store, lambda: self.progress, self.metrics.recovered)
        policy = self.config.policy()
        self._worker = Worker(self.store, self.queue, executor, policy, self.metrics)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._worker.run(), name="worker")
            group.create_task(keep_active(self.client, self.store), name="admission-checks")
            group.create_task(self.relister.run(), name="relist")
            group.create_task(
                keep_penalties(self.client, self.store, policy, self.config.relist_seconds),
                name="node-health",
            )
            timeout, interval = self.config.lease_timeout_seconds, self.config.lease_poll_seconds
            if timeout is not None:
                group.create_task(
                    poll_leases(self.client, self.store, timeout, interval), name="leases"
                )
            group.create_task(
                watch_foreign(self.client, self.store, version, self.alive, self._namespaces),
                name="foreign-pods",
            )

    async def _list(self, kinds: Collection[Kind]) -> None:
        await list_all(self.client, self.store, self._namespaces, kinds)

    def _look_at_all(self) -> None:
        for job in list(self.store.all_jobs()):
            self.queue.add(job.key)

    async def drain(self, seconds: float) -> None:
        """Begin nothing new, and wait so long for what has begun."""
        if self._worker is not None:
            await self._worker.drain(seconds)

    async def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            await self._client.close()
