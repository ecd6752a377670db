"""What the operator knows of the cluster: slim views, and which job each change concerns.

Everything that the API server says ends up here: watch events, lists, and the answers to our own
writes, so that a decision reads what the one before it wrote.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain.heard import Heard
from goodput_operator.domain.migration import waits_for_room
from goodput_operator.domain.model import (
    JobKey,
    JobView,
    NodeHealthView,
    NodeView,
    PodView,
    Refusal,
    Snapshot,
    WorkloadView,
)
from goodput_operator.domain.storage import ClaimView, VolumeView
from goodput_operator.observe.claim import parse_claim, parse_volume
from goodput_operator.observe.flavor import FlavorView, parse_flavor
from goodput_operator.observe.job import parse_job
from goodput_operator.observe.node import parse_node
from goodput_operator.observe.node_health import parse_node_health
from goodput_operator.observe.pod import parse_pod
from goodput_operator.observe.raw import text
from goodput_operator.runtime.belonging import job_of, same, without_managed_fields
from goodput_operator.runtime.foreign import ForeignUsage, added
from goodput_operator.runtime.nodes import LeaseSign, Nodes
from goodput_operator.runtime.table import Identity, Name, Table
from goodput_operator.runtime.workloads import Workloads

Raw = Mapping[str, Any]

ROOM_DELAY = 0.2
"""Seconds for which changes of free room are gathered before waiting jobs are looked at."""
STAY_DELAY = 2.0
"""The same for jobs that run meanwhile, on nodes that they should leave: theirs is no hurry."""
_AT_REST = (Phase.COMPLETE, Phase.FAILED, Phase.SUSPENDED)


class Wake(Protocol):
    """Has a job looked at, after some seconds."""

    def __call__(self, key: JobKey, delay: float = 0.0) -> None: ...


class Store:
    """Views by kind. ``put_…`` takes an object as it is now, ``drop_…`` one that was deleted."""

    def __init__(
        self,
        wake: Wake,
        clock: Callable[[], float] = time.time,
        bad_node_conditions: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``bad_node_conditions``: types and statuses with which no rank may be on a node."""
        self._wake = wake
        self._clock = clock
        self._bad_node_conditions = bad_node_conditions
        self.jobs: Table[JobView] = Table()
        self.workloads: Table[Raw] = Table()
        self.pods: Table[PodView | None] = Table()
        self.nodes: Table[NodeView] = Table()
        self.health: Table[NodeHealthView] = Table()
        self.flavors: Table[FlavorView] = Table()
        self.checks: Table[Raw] = Table()
        self.claims: Table[ClaimView] = Table()
        self.volumes: Table[VolumeView] = Table()
        self.foreign = ForeignUsage()
        self.disowned = ForeignUsage()
        """Pods that have our labels, and no job of which they are."""
        # The same by the keys that decisions use, kept in step.
        self._jobs: dict[JobKey, JobView] = {}
        self._workloads = Workloads()
        self._pods: dict[JobKey, dict[str, PodView]] = {}
        self._pods_by_uid: dict[str, PodView] = {}
        self._nodes = Nodes()
        self._health: dict[str, NodeHealthView] = {}
        self._claims: dict[tuple[str, str], ClaimView] = {}
        self._volumes: dict[str, VolumeView] = {}
        self._errors: dict[JobKey, Refusal] = {}
        self.heard: Callable[[], Heard | None] = lambda: None
        """What the progress endpoint has heard, if there is one."""

    # What others ask

    def snapshot(self) -> Snapshot:
        """Everything a decision may look at; shared, not copied: decide before the next await."""
        return Snapshot(
            jobs=self._jobs,
            workloads=self._workloads.by_job,
            pods={key: tuple(mine.values()) for key, mine in self._pods.items()},
            nodes=self._nodes.by_name,
            foreign_usage=added(self.foreign.by_node, self.disowned.by_node),
            errors=self._errors,
            claims=self._claims,
            volumes=self._volumes,
            health=self._health,
            heard=self.heard(),
        )

    def job(self, key: JobKey) -> JobView | None:
        """A TrainingJob."""
        return self._jobs.get(key)

    def all_jobs(self) -> Iterable[JobView]:
        """All TrainingJobs."""
        return self._jobs.values()

    def pod_by_uid(self, uid: str) -> PodView | None:
        """A TrainingJob's pod."""
        return self._pods_by_uid.get(uid)

    def workload(self, key: JobKey, name: str) -> WorkloadView | None:
        """A Workload of a job."""
        mine = self._workloads.by_job.get(key, ())
        return next((each for each in mine if each.name == name), None)

    def our_checks(self) -> list[Raw]:
        """The AdmissionChecks that this operator answers."""
        found = (self.checks.get(Name("", name)) for name in sorted(self._workloads.our_checks))
        return [raw for raw in found if raw is not None]

    def error(self, key: JobKey) -> Refusal | None:
        """What the API server last refused to do for a job."""
        return self._errors.get(key)

    def set_error(self, key: JobKey, error: Refusal | None) -> None:
        """Note what the API server refuses to do for a job; None once it no longer does."""
        if error is None:
            self._errors.pop(key, None)
        else:
            self._errors[key] = error

    # Jobs

    def put_job(self, raw: Raw) -> None:
        """A TrainingJob."""
        identity = Identity.of(raw)
        if not self.jobs.accepts(identity):
            return
        view = parse_job(raw)
        before = self.jobs.put(identity, view)
        self._jobs[view.key] = view
        if before is None or before.uid != view.uid:
            self._errors.pop(view.key, None)  # What was refused to another job of that name.
        if before is None or not same(before, view):
            self._wake(view.key)

    def drop_job(self, identity: Identity) -> None:
        """A TrainingJob is gone."""
        key = JobKey(*identity.name)
        if self.jobs.drop(identity) is not None:
            del self._jobs[key]
            self._errors.pop(key, None)
            self._wake_waiting()

    # Workloads, and Kueue's ResourceFlavors and AdmissionChecks

    def put_workload(self, raw: Raw) -> None:
        """A Workload; one that no TrainingJob owns, or no longer does, is nobody's."""
        identity = Identity.of(raw)
        if self.workloads.accepts(identity):
            slim = without_managed_fields(raw)
            before = self.workloads.put(identity, slim)
            self._wake_all(self._workloads.put(slim, before))

    def drop_workload(self, identity: Identity) -> None:
        """A Workload is gone."""
        raw = self.workloads.drop(identity)
        if raw is not None:
            self._wake_all(self._workloads.drop(raw))

    def put_flavor(self, raw: Raw) -> None:
        """A ResourceFlavor."""
        identity = Identity.of(raw)
        if self.flavors.accepts(identity):
            view = parse_flavor(raw)
            self.flavors.put(identity, view)
            self._wake_all(self._workloads.put_flavor(view))

    def drop_flavor(self, identity: Identity) -> None:
        """A ResourceFlavor is gone."""
        view = self.flavors.drop(identity)
        if view is not None:
            self._wake_all(self._workloads.drop_flavor(view.name))

    def put_check(self, raw: Raw) -> None:
        """An AdmissionCheck."""
        identity = Identity.of(raw)
        if self.checks.accepts(identity):
            self.checks.put(identity, raw)
            ours = text(raw, "spec", "controllerName") == c.CHECK_CONTROLLER
            self._wake_all(self._workloads.put_check(identity.name.name, ours=ours))

    def drop_check(self, identity: Identity) -> None:
        """An AdmissionCheck is gone."""
        if self.checks.drop(identity) is not None:
            self._wake_all(self._workloads.put_check(identity.name.name, ours=False))

    # Pods of TrainingJobs

    def put_pod(self, raw: Raw) -> None:
        """A pod with our labels; one that no job controls, or no longer does, only takes room."""
        identity = Identity.of(raw)
        if not self.pods.accepts(identity):
            return
        view = parse_pod(raw)
        before = self.pods.put(identity, view)
        freed = self.disowned.put(raw) if view is None else self.disowned.remove(raw)
        if before is not None and (view is None or job_of(before) != job_of(view)):
            self._forget_pod(before)
            before = None
        if view is not None:
            self._keep_pod(view, before)
        elif freed:
            self._wake_waiting()

    def _keep_pod(self, view: PodView, before: PodView | None) -> None:
        if before is not None:
            self._pods_by_uid.pop(before.uid, None)
        self._pods_by_uid[view.uid] = view
        self._pods.setdefault(job_of(view), {})[view.name] = view
        if before is None or not same(before, view):
            self._wake(job_of(view))
        if view.terminal and (before is None or not before.terminal):
            self._wake_waiting()

    def drop_pod(self, identity: Identity) -> None:
        """A pod is gone."""
        view = self.pods.drop(identity)
        namespace, name = identity.name
        if view is not None:
            self._forget_pod(view)
        elif self.disowned.remove({"metadata": {"namespace": namespace, "name": name}}):
            self._wake_waiting()

    def _forget_pod(self, view: PodView) -> None:
        key = job_of(view)
        self._pods_by_uid.pop(view.uid, None)
        del self._pods[key][view.name]
        if not self._pods[key]:
            del self._pods[key]
        self._wake(key)
        self._wake_waiting()

    # Nodes, and pods of others

    def put_node(self, raw: Raw) -> None:
        """A node; a mere heartbeat wakes nobody."""
        identity = Identity.of(raw)
        if not self.nodes.accepts(identity):
            return
        view = parse_node(raw, self._bad_node_conditions)
        self.nodes.put(identity, view)
        if self._nodes.put(view, self._clock()):
            self._wake_placed_on({view.name})
            self._wake_waiting()

    def drop_node(self, identity: Identity) -> None:
        """A node is gone."""
        view = self.nodes.drop(identity)
        if view is not None:
            self._nodes.drop(view.name)
            self._wake_placed_on({view.name})
            self._wake_waiting()

    def put_health(self, raw: Raw) -> None:
        """A NodeHealth: of concern to the next placements alone, so it wakes nobody."""
        identity = Identity.of(raw)
        if self.health.accepts(identity):
            view = parse_node_health(raw)
            self.health.put(identity, view)
            self._health[view.name] = view

    def drop_health(self, identity: Identity) -> None:
        """A NodeHealth is gone: its node is as good as any other."""
        view = self.health.drop(identity)
        if view is not None:
            del self._health[view.name]
            self._wake_waiting()

    @property
    def needs_leases(self) -> bool:
        """Whether some job has ranks on nodes, or a crash that a lost node may explain."""
        return any(
            job.status.placement is not None or job.status.phase is Phase.RESTARTING
            for job in self._jobs.values()
        )

    def put_leases(self, signs: Mapping[str, LeaseSign]) -> None:
        """What polling has shown of the Leases of all nodes."""
        changed = self._nodes.put_leases(signs, self._clock())
        if changed:
            self._wake_placed_on(changed)
            self._wake_waiting()
        for key, job in self._jobs.items():
            # Waits for a sign of life of each node, and would not be woken by mere heartbeats.
            restarting = job.status.phase is Phase.RESTARTING
            if restarting and job.status.reason == c.Reason.CRASH_BUDGET_EXHAUSTED:
                self._wake(key)

    def replace_foreign_pods(self, pods: Iterable[Raw]) -> None:
        """All pods that are not ours."""
        self.foreign.replace(pods)
        self._wake_waiting()

    def put_foreign_pod(self, raw: Raw) -> None:
        """A pod that is not ours."""
        if self.foreign.put(raw):
            self._wake_waiting()

    def drop_foreign_pod(self, raw: Raw) -> None:
        """A pod that is not ours is gone, or has ended."""
        if self.foreign.remove(raw):
            self._wake_waiting()

    # PersistentVolumeClaims and PersistentVolumes

    def put_claim(self, raw: Raw) -> None:
        """A PersistentVolumeClaim."""
        identity = Identity.of(raw)
        if not self.claims.accepts(identity):
            return
        view = parse_claim(raw)
        self._claims[view.namespace, view.name] = view
        if self.claims.put(identity, view) != view:
            self._wake_waiting(view.namespace)

    def drop_claim(self, identity: Identity) -> None:
        """A PersistentVolumeClaim is gone."""
        view = self.claims.drop(identity)
        if view is not None:
            del self._claims[view.namespace, view.name]
            self._wake_waiting(view.namespace)

    def put_volume(self, raw: Raw) -> None:
        """A PersistentVolume."""
        identity = Identity.of(raw)
        if not self.volumes.accepts(identity):
            return
        view = parse_volume(raw)
        self._volumes[view.name] = view
        if self.volumes.put(identity, view) != view and view.claim is not None:
            self._wake_waiting(view.claim[0])

    def drop_volume(self, identity: Identity) -> None:
        """A PersistentVolume is gone; its claim says so by itself."""
        view = self.volumes.drop(identity)
        if view is not None:
            del self._volumes[view.name]

    # Whom a change concerns

    def _wake_all(self, keys: Iterable[JobKey]) -> None:
        for key in keys:
            self._wake(key)

    def _wake_placed_on(self, nodes: Set[str]) -> None:
        """Jobs with a rank there, or that had one in an attempt that may yet be explained by it."""
        for key, job in self._jobs.items():
            placement, past = job.status.placement, job.status.attempts
            if (
                (placement is not None and not nodes.isdisjoint(placement.nodes))
                or (past and not nodes.isdisjoint(past[-1].nodes))
                or any(pod.node in nodes for pod in self._pods.get(key, {}).values())
            ):
                self._wake(key)

    def _wake_waiting(self, namespace: str | None = None) -> None:
        """Jobs, of one namespace or all, that may be waiting for room or for pods to be gone.

        Those that run on nodes which they should leave wait for room as well.
        """
        for key, job in self._jobs.items():
            if namespace not in (None, key.namespace):
                continue
            if job.status.placement is None and job.status.phase not in _AT_REST:
                self._wake(key, ROOM_DELAY)
            elif job.status.placement is not None and waits_for_room(job.status):
                self._wake(key, STAY_DELAY)


__all__ = ["Identity", "Name", "Store", "Wake"]
