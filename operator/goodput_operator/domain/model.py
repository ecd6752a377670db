"""Frozen views of what the cluster holds: the only input of a decision.

Every view is parsed once, at the edge (``goodput_operator.observe``). Times are POSIX seconds, UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from goodput_operator import constants as c
from goodput_operator.api.node_health import NodeHealthStatus
from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.domain.heard import Heard
from goodput_operator.domain.resources import Resources
from goodput_operator.domain.storage import ClaimView, VolumeView


class JobKey(NamedTuple):
    """Identifies a TrainingJob, and is the key of the work queue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobView:
    """A TrainingJob. ``spec`` is None when it cannot be read, and ``spec_error`` says why."""

    key: JobKey
    uid: str
    resource_version: str
    generation: int
    created_at: float
    deleting: bool
    labels: Mapping[str, str]
    spec: TrainingJobSpec | None
    status: TrainingJobStatus
    spec_error: str | None = None

    @property
    def queue(self) -> str | None:
        """Name of the LocalQueue, given as Kueue's users give it: by the label."""
        return self.labels.get(c.LABEL_QUEUE) or None

    @property
    def priority_class(self) -> str | None:
        """Name of the WorkloadPriorityClass, by Kueue's label."""
        return self.labels.get(c.LABEL_PRIORITY_CLASS) or None


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """A container that has terminated."""

    container: str
    exit_code: int
    reason: str
    """``OOMKilled``, ``Error``, ``Completed``, ``ContainerStatusUnknown``, …"""
    message: str
    finished_at: float | None = None


class PodCondition(NamedTuple):
    """A condition of a pod, as rules look at it."""

    type: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of a TrainingJob."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    job: str
    job_uid: str
    attempt: int
    role: str
    rank: int
    """Rank within its role."""
    created_at: float
    deleting: bool
    phase: str
    ready: bool
    node: str | None
    """The node it is bound to; None before."""
    pinned_node: str | None
    """The node that it is required to be on, by its affinity."""
    requests: Resources
    status_reason: str
    """``status.reason``: ``Evicted``, ``NodeLost``, ``UnexpectedAdmissionError``, …"""
    status_message: str
    disruption: str | None
    """Reason of a true ``DisruptionTarget`` condition."""
    unschedulable_message: str | None
    """Message of a false ``PodScheduled`` condition."""
    waiting: str | None
    """Why a container waits: ``ImagePullBackOff: …``."""
    exits: tuple[ContainerExit, ...] = ()
    deletion_deadline: float | None = None
    """When its grace is over, if it is being deleted."""
    captured: bool = False
    """Kueue's pod integration has taken it for a job of its own."""
    incarnation: int = 0
    """How often its rank had been replaced within the attempt before it."""
    conditions: tuple[PodCondition, ...] = ()
    """Its conditions, but for the kubelet's and scheduler's own that every pod has."""

    @property
    def terminal(self) -> bool:
        """Succeeded or Failed: its containers have stopped for good."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str


class Lease(Enum):
    """How long ago a node has renewed its Lease, as far as Leases are polled."""

    UNKNOWN = "unknown"
    """There is none, or they are not polled."""
    FRESH = "fresh"
    LATE = "late"
    """Later than a kubelet renews it, but not yet for long enough to take the node for lost."""
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Silence:
    """When a node was not heard from, the last time that this happened."""

    since: float
    until: float | None = None
    """When it was heard again; None while it is silent."""


class BadCondition(NamedTuple):
    """A condition of a node that says that no rank may be on it."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    ready_since: float | None
    """Last transition of its Ready condition."""
    ready_message: str
    heartbeat_at: float | None
    """Its last sign of life that is known."""
    allocatable: Resources
    deleting: bool = False
    unknown: bool = False
    """Its Ready condition is Unknown: not its kubelet says so, but the controller manager."""
    lease: Lease = Lease.UNKNOWN
    silence: Silence | None = None
    seen_lost_at: float | None = None
    """When it was first known to be lost; that may be long after it was."""
    bad: BadCondition | None = None
    """The first of the configured conditions that it has now."""
    uid: str = ""
    system_uuid: str = ""
    """``status.nodeInfo.systemUUID``: of the machine, whatever Node object stands for it."""

    @property
    def lost(self) -> bool:
        """Whether ranks on it must be taken for lost."""
        return (
            not self.ready
            or self.lease is Lease.STALE
            or self._has_taint(c.TAINT_UNREACHABLE, c.TAINT_OUT_OF_SERVICE)
        )

    @property
    def lost_since(self) -> float | None:
        """Since when, if it is lost and that is known."""
        silent = self.silence.since if self.silence and self.silence.until is None else None
        times = (silent, None if self.ready else self.ready_since)
        return min((each for each in times if each is not None), default=None)

    @property
    def settling_since(self) -> float | None:
        """From when on others may follow it: they are known no sooner than it was itself.

        Not so with a stale Lease: others are late by then.
        """
        if self.seen_lost_at is None or self.lease is Lease.STALE:
            return self.lost_since
        return self.seen_lost_at

    @property
    def unheard(self) -> bool:
        """Whether nobody has heard from it of late. An out-of-service taint is somebody's word."""
        return (
            self.unknown
            or self.lease in (Lease.LATE, Lease.STALE)
            or self._has_taint(c.TAINT_UNREACHABLE)
        ) and not self._has_taint(c.TAINT_OUT_OF_SERVICE)

    def _has_taint(self, *keys: str) -> bool:
        return any(taint.key in keys for taint in self.taints)


@dataclass(frozen=True, slots=True)
class CheckState:
    """One entry of a Workload's ``status.admissionChecks``."""

    name: str
    state: str
    message: str
    ours: bool
    """The AdmissionCheck's controllerName is ours."""


@dataclass(frozen=True, slots=True)
class WorkloadCondition:
    """A condition of a Workload."""

    status: bool
    reason: str
    message: str
    since: float


class TopologyDomain(NamedTuple):
    """Nodes with these labels, to which Kueue's topology assignment gives so many ranks."""

    labels: tuple[tuple[str, str], ...]
    ranks: int


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """What Kueue assigned to a pod set, with its flavours resolved."""

    name: str
    count: int
    node_labels: Mapping[str, str]
    """Node labels of the assigned flavours plus the ``podSetUpdates`` of all checks."""
    tolerations: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conflict: str | None = None
    """Two checks (or a check and a flavour) want different values: which."""
    topology: tuple[TopologyDomain, ...] = ()
    """In the order of the ranks; empty without topology-aware scheduling."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Kueue Workload that a TrainingJob owns."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    owner_uid: str
    queue: str
    active: bool
    deleting: bool
    created_at: float
    quota_reserved: WorkloadCondition | None
    admitted: WorkloadCondition | None
    evicted: WorkloadCondition | None
    finished: WorkloadCondition | None
    pods_ready: WorkloadCondition | None
    requeued: WorkloadCondition | None
    has_admission: bool
    """``status.admission`` is set."""
    checks: tuple[CheckState, ...]
    assignments: tuple[PodSetAssignment, ...]
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    """By pod set, how many of the pods that its spec counts have given their quota back."""
    deactivated_by_us: bool = False
    """``spec.active`` is false because this operator set it, by the annotation set with it."""
    unhealthy_nodes: tuple[str, ...] = ()
    """Nodes of its topology assignment for which Kueue is looking for others."""

    @property
    def holds_quota(self) -> bool:
        """Kueue counts its quota as used."""
        return self.has_admission and not (self.finished and self.finished.status)

    @property
    def is_admitted(self) -> bool:
        """Admitted, and not being evicted: pods may run."""
        return bool(
            self.admitted and self.admitted.status and self.has_admission and not self.is_evicted
        )

    @property
    def is_evicted(self) -> bool:
        """Kueue wants it to stop."""
        return bool(self.evicted and self.evicted.status)

    @property
    def unanswered_checks(self) -> tuple[str, ...]:
        """Our own admission checks that are not Ready."""
        return tuple(each.name for each in self.checks if each.ours and each.state != "Ready")

    @property
    def is_finished(self) -> bool:
        """Over, as far as Kueue is concerned."""
        return bool(self.finished and self.finished.status)


@dataclass(frozen=True, slots=True)
class NodeHealthView:
    """A NodeHealth, of the node of that name."""

    name: str
    uid: str
    resource_version: str
    status: NodeHealthStatus


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server refuses to do for a job, while it is tried again."""

    message: str
    reason: str = c.Reason.API_ERROR
    """Reason of the condition that says so."""
    transient: bool = False
    """Nothing is wrong with what is wanted: there was no answer, or a webhook does not work."""
    final: bool = False
    """It never will be done: the job says so, and nothing more is tried for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision may look at. Built for one key; cheap, since views are shared."""

    jobs: Mapping[JobKey, JobView]
    workloads: Mapping[JobKey, tuple[WorkloadView, ...]]
    """Workloads by the job that owns them."""
    pods: Mapping[JobKey, tuple[PodView, ...]]
    """Pods of TrainingJobs, by job."""
    nodes: Mapping[str, NodeView]
    foreign_usage: Mapping[str, Resources]
    """Per node, the effective requests of all pods that are not ours, bound and not terminal."""
    errors: Mapping[JobKey, Refusal] = field(default_factory=dict)
    """What the API server last refused, by job, until a later plan of that job has succeeded."""
    claims: Mapping[tuple[str, str], ClaimView] = field(default_factory=dict)
    """PersistentVolumeClaims by namespace and name."""
    volumes: Mapping[str, VolumeView] = field(default_factory=dict)
    """PersistentVolumes by name."""
    health: Mapping[str, NodeHealthView] = field(default_factory=dict)
    """NodeHealths by the name of their node."""
    heard: Heard | None = None
    """What the ranks report; None while nobody listens."""
