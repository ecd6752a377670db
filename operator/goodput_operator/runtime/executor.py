"""Turns a plan into requests. Every action may already have been done: that is success."""

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.status import Recovery, TrainingJobStatus
from goodput_operator.builders import event as events
from goodput_operator.builders import node_health, service, workload, workload_status
from goodput_operator.builders import pod as pods
from goodput_operator.builders.progress import ProgressTarget
from goodput_operator.builders.status import build_replacement, build_status, left_over
from goodput_operator.domain import plan as p
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client, Object
from goodput_operator.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotInstalled,
)
from goodput_operator.kube.paths import Resource
from goodput_operator.runtime.hung import HungWebhooks
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity

log = logging.getLogger(__name__)

CONCURRENT_WRITES = 64
STATUS_TRIES = 3
_ON_PODS = (p.CreatePod, p.DeletePod)


class Executor:
    """Executes plans, and feeds what the API server answers back into the store."""

    def __init__(
        self,
        client: Client,
        store: Store,
        progress: Callable[[], ProgressTarget | None],
        on_recovery: Callable[[Recovery], None] = lambda recovery: None,
    ) -> None:
        """``progress`` gives the progress endpoint as pods reach it, once it is known;
        ``on_recovery`` is told of each recovery once it is in its job's status."""
        self._client = client
        self._store = store
        self._progress = progress
        self._on_recovery = on_recovery
        self._told: dict[str, None] = {}
        self._hung = HungWebhooks(time.monotonic)
        self.doing = ""
        """The action that was begun last, in words."""

    async def execute(self, job: JobView, plan: p.Plan) -> None:
        """All of the plan, in its order. Raises ApiError at the first action that fails."""
        if plan.commit and plan.status is not None:
            await self._write_status(job, plan.status)
        else:
            await self._act(job, plan.actions)
            if plan.status is not None:
                await self.write_status(job, plan.status)
                recovery = plan.status.recovery
                if recovery is not None and recovery != job.status.recovery:
                    self._on_recovery(recovery)
        await self.tell(job, plan.events)

    async def tell(self, job: JobView, told: Iterable[p.JobEvent]) -> None:
        """Record Events, each once."""
        for event in told:
            await self._tell(job, event)

    async def write_status(self, job: JobView, status: TrainingJobStatus) -> None:
        """Write a status that no later version of the same job can contradict.

        What may have changed since are the fields of the progress endpoint, and the spec, which is
        decided upon anew. It is guarded all the same: a job of this name that was created since
        must not get it.
        """
        for _ in range(STATUS_TRIES):
            try:
                await self._write_status(job, status)
            except Conflict:
                await self.refresh(job)
                newest = self._store.job(job.key)
                if newest is None or newest.uid != job.uid:
                    raise
                job = newest
            else:
                return
        await self._write_status(job, status)

    async def refresh(self, job: JobView) -> None:
        """Read the job anew, after a write has shown that what is known of it is old."""
        try:
            raw = await self._client.get(paths.TRAINING_JOBS, job.key.namespace, job.key.name)
        except ApiError as error:
            log.debug("not read anew: %s", error)
        else:
            self._store.put_job(raw)

    async def _write_status(self, job: JobView, status: TrainingJobStatus) -> None:
        body = build_status(job, status, guarded=True)
        try:
            answer = await self._client.apply_status(paths.TRAINING_JOBS, body, c.FIELD_MANAGER)
        except Invalid:
            # A part of what we take away is somebody else's, stays, and is no whole.
            answer = await self._replace_status(job.key, build_replacement(body))
        self._store.put_job(answer)
        left = left_over(body, answer)
        if left:
            log.warning("taking away what somebody else wrote to the status: %s", sorted(left))
            body["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"]
            self._store.put_job(await self._replace_status(job.key, build_replacement(body)))

    async def _replace_status(self, key: JobKey, patch: Mapping[str, Any]) -> Object:
        return await self._client.patch(
            paths.TRAINING_JOBS, key.namespace, key.name, patch, subresource="status"
        )

    async def _act(self, job: JobView, actions: Iterable[p.Action]) -> None:
        """One after the other, but the pods all at once."""
        for of_pods, group in itertools.groupby(actions, lambda each: isinstance(each, _ON_PODS)):
            if of_pods:
                await self._at_once(job, group)
            else:
                for action in group:
                    await self._one(job, action)

    async def _at_once(self, job: JobView, actions: Iterable[p.Action]) -> None:
        """In batches that double in size, until one of a batch fails, and then all the rest.

        So a gang over its namespace's quota costs a request or two for each try, not a thousand
        (the "slow start" of Kubernetes' own Job controller).
        """
        left, size = list(actions), 1
        while left:
            count = size if size < CONCURRENT_WRITES else len(left)
            batch, left = left[:count], left[count:]
            await self._batch(job, batch)
            size *= 2

    async def _batch(self, job: JobView, actions: Iterable[p.Action]) -> None:
        """As many at a time as there are slots; after a failure no more are begun.

        None is left running behind. Raises the first failure.
        """
        slots = asyncio.Semaphore(CONCURRENT_WRITES)
        failures: list[ApiError] = []

        async def begin(action: p.Action) -> None:
            async with slots:
                if not failures:
                    try:
                        await self._one(job, action)
                    except ApiError as error:
                        failures.append(error)

        results = await asyncio.gather(*map(begin, actions), return_exceptions=True)
        for failure in filter(None, (*results, *failures)):
            raise failure

    async def _one(self, job: JobView, action: p.Action) -> None:
        self.doing = _in_words(action)
        with self._hung.spare(action, self.doing):
            await self._do(job, action)

    async def _do(self, job: JobView, action: p.Action) -> None:
        match action:
            case p.CreatePod():
                await self._create_pod(job, action)
            case p.DeletePod(name, uid, grace):
                await self._delete_pod(job.key, name, uid, grace)
            case p.EnsureService():
                body = service.build_service(job)
                await self._create(paths.SERVICES, body, job)
            case p.CreateWorkload():
                await self._create_workload(job, action)
            case p.SetWorkloadActive(name, active):
                patch = workload.activation_patch(active)
                answer = await self._client.patch(paths.WORKLOADS, job.key.namespace, name, patch)
                self._store.put_workload(answer)
            case p.DeleteWorkload(name, uid):
                await self._delete(paths.WORKLOADS, job.key.namespace, name, uid)
            case p.SetNodeHealth():
                await self._set_node_health(action)
            case p.DeleteJob(uid):
                await self._delete(paths.TRAINING_JOBS, job.key.namespace, job.key.name, uid)
            case _:
                await self._workload_status(job.key, action)

    # Children

    async def _create_pod(self, job: JobView, action: p.CreatePod) -> None:
        assignment = next(
            (each for each in self._assignments(job) if each.name == action.role),
            None,
        )
        body = pods.build_pod(job, action, assignment, self._progress())
        self._store.put_pod(await self._create(paths.PODS, body, job))

    def _assignments(self, job: JobView) -> Iterable[Any]:
        name = job.status.workload or workload.workload_name(job)
        view = self._store.workload(job.key, name)
        return view.assignments if view else ()

    async def _create_workload(self, job: JobView, action: p.CreateWorkload) -> None:
        priority = await self._priority(job)
        body = workload.build_workload(job, action.name, priority, action.replaces, action.least)
        self._store.put_workload(await self._create(paths.WORKLOADS, body, job))

    async def _priority(self, job: JobView) -> int | None:
        """Value of the job's priority class: Kueue leaves it to us to look up."""
        named = workload.priority_class(job)
        if named is None:
            return None
        plural = f"{named.kind.lower()}es"
        version = c.KUEUE_VERSION if named.group == c.KUEUE_GROUP else "v1"
        resource = Resource(named.group, version, plural, namespaced=False)
        try:
            found = await self._client.get(resource, None, named.name)
        except NotInstalled:
            raise
        except NotFound as error:
            raise UnknownPriorityClass(named.kind, named.name, error.said) from error
        return int(found.get("value", 0))

    async def _create(self, resource: Resource, body: Mapping[str, Any], job: JobView) -> Object:
        """The object as it is there. Raises Conflict when the name is taken by another owner's."""
        metadata = body["metadata"]
        try:
            return await self._client.create(resource, body)
        except AlreadyExists:
            found = await self._client.get(resource, metadata["namespace"], metadata["name"])
        owners = found["metadata"].get("ownerReferences", ())
        if any(each.get("uid") == job.uid for each in owners):
            return found
        raise Taken(
            f"create {resource.plural} {metadata['name']}",
            "the name is taken by an object of another owner; delete it, or rename the job",
        )

    async def _delete_pod(self, key: JobKey, name: str, uid: str, grace: int | None) -> None:
        """Delete a pod; one that stops at once is known to be gone without waiting for a watch."""
        answer = await self._delete(paths.PODS, key.namespace, name, uid, grace)
        if answer is None:
            self._store.drop_pod(Identity.of({"metadata": _metadata(key.namespace, name, uid)}))
            return
        metadata = answer.get("metadata", {})
        if metadata.get("uid") != uid:
            return
        if metadata.get("deletionGracePeriodSeconds"):
            self._store.put_pod(answer)
        else:
            self._store.drop_pod(Identity.of(answer))

    async def _delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        grace: int | None = None,
    ) -> Object | None:
        """The server's answer; None when the object was gone already."""
        try:
            return await self._client.delete(resource, namespace, name, uid, grace)
        except (NotFound, Conflict):
            return None

    # Nodes

    async def _set_node_health(self, action: p.SetNodeHealth) -> None:
        """Write it, guarded by the version it was made from. Raises Conflict.

        An operator that may not, or whose cluster lacks the CRD, goes on without: jobs come first.
        """
        try:
            version = action.resource_version or await self._create_node_health(action)
            body = node_health.build_status(action.node, version, action.status)
            self._store.put_health(await self._client.put_status(paths.NODE_HEALTHS, body))
        except (Forbidden, NotInstalled) as error:
            log.warning("a failure of node %s is not remembered: %s", action.node, error)
        except NotFound as error:
            attempted = f"update nodehealths {action.node}"
            raise Conflict(attempted, "it was deleted since this was decided") from error

    async def _create_node_health(self, action: p.SetNodeHealth) -> str:
        """The version of a new one. Raises Conflict when there is one that nobody knew of."""
        body = node_health.build_node_health(action.node, action.node_uid)
        try:
            made = await self._client.create(paths.NODE_HEALTHS, body)
        except AlreadyExists as error:
            self._store.put_health(await self._client.get(paths.NODE_HEALTHS, None, action.node))
            attempted = f"create nodehealths {action.node}"
            raise Conflict(attempted, "there is one by now") from error
        return str(made["metadata"]["resourceVersion"])

    # The Workload's status

    async def _workload_status(self, key: JobKey, action: p.WorkloadStatusChange) -> None:
        """Change the status of the very version that the plan was made from."""
        changes: Mapping[type, Callable[..., Object]] = {
            p.AnswerChecks: workload_status.answer_checks,
            p.SetPodsReady: workload_status.set_pods_ready,
            p.ReclaimPods: workload_status.reclaim_pods,
            p.ReleaseQuota: workload_status.release_quota,
            p.FinishWorkload: workload_status.finish,
        }
        raw = await self._client.get(paths.WORKLOADS, key.namespace, action.workload)
        self._store.put_workload(raw)
        if raw["metadata"]["resourceVersion"] != action.resource_version:
            attempted = f"update workloads {action.workload}"
            raise Conflict(attempted, "it has changed since this was decided")
        changed = changes[type(action)](raw, action, time.time())
        self._store.put_workload(await self._client.put_status(paths.WORKLOADS, changed))

    # Events

    async def _tell(self, job: JobView, event: p.JobEvent) -> None:
        """Record an Event once. Losing one is no reason to do anything again."""
        body = events.build_event(job, event, time.time())
        name = body["metadata"]["name"]
        if name in self._told:
            return
        try:
            await self._client.create(paths.EVENTS, body)
        except AlreadyExists:
            pass
        except ApiError as error:
            log.warning("event %s was not recorded: %s", event.reason, error)
            return
        log.info("%s: %s", event.reason, event.message)
        self._told[name] = None
        if len(self._told) > 10_000:
            self._told.pop(next(iter(self._told)))


class Taken(ApiError):  # noqa: N818 - beside the other refusals
    """A child's name is taken by an object that is not this job's."""

    kind = "taken"


class UnknownPriorityClass(ApiError):  # noqa: N818
    """The job names a priority class that does not exist."""

    kind = "notFound"
    reason = c.Reason.UNKNOWN_PRIORITY_CLASS

    def __init__(self, kind: str, name: str, said: str) -> None:
        super().__init__(f"look up {kind} {name}", said)
        ours = kind == "WorkloadPriorityClass"
        field = f"label {c.LABEL_PRIORITY_CLASS}" if ours else "template's priorityClassName"
        self.remedy = f"create it, or correct the {field}; it is looked for again by itself"


def _in_words(action: p.Action) -> str:
    """Such as ``create workload digits-1a2b``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(action).__name__).lower()
    name = getattr(action, "name", None) or getattr(action, "workload", None)
    return f"{words} {name}" if name else words


def _metadata(namespace: str, name: str, uid: str) -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": uid}
