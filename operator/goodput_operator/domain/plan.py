"""What ``decide`` wants done. Intents are data; the executor turns them into API calls.

A plan is one of two kinds. A *commit* only writes the job's status, guarded by ``resourceVersion``,
and what follows from it is decided anew once it is stored. Any other plan runs its actions, then
writes the status, then emits its events; killing the operator anywhere in between is harmless,
since every action is idempotent and the next decision starts from what is observed.
"""

from dataclasses import dataclass
from typing import Literal

from goodput_operator.api.node_health import NodeHealthStatus
from goodput_operator.api.status import TrainingJobStatus


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create the job's Workload under this name, made from the job's spec (or see it exists)."""

    name: str
    replaces: str | None = None
    """The Workload from which Kueue hands the quota over, in the moment in which it admits this."""
    least: int | None = None
    """With how few ranks of the role with ``minReplicas`` it may be admitted; None: with these."""


@dataclass(frozen=True, slots=True)
class SetWorkloadActive:
    """Set ``spec.active`` of the Workload: false evicts it, true queues it again."""

    name: str
    active: bool


@dataclass(frozen=True, slots=True)
class AnswerChecks:
    """Set our entries of the Workload's admission checks to a state."""

    workload: str
    resource_version: str
    checks: tuple[str, ...]
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: str
    requeue_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class SetPodsReady:
    """Set the Workload's ``PodsReady`` condition, which Kueue's own time-out acts on."""

    workload: str
    resource_version: str
    ready: bool
    message: str


@dataclass(frozen=True, slots=True)
class ReclaimPods:
    """Give back the quota of pods that this attempt does not have, while the rest runs.

    It can only grow until the quota is released as a whole, which forgets it.
    """

    workload: str
    resource_version: str
    counts: tuple[tuple[str, int], ...]
    """By pod set, how many of the pods that the Workload's spec counts are not there."""


@dataclass(frozen=True, slots=True)
class ReleaseQuota:
    """Clear the admission of an evicted Workload; ``requeued`` becomes its condition's status."""

    workload: str
    resource_version: str
    requeued: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FinishWorkload:
    """Set the Workload's ``Finished`` condition: its quota is free at once."""

    workload: str
    resource_version: str
    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a Workload that no longer describes the job."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EnsureService:
    """Create the headless Service of the job (one per job; the pods' subdomain)."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one rank's pod on its node."""

    attempt: int
    role: str
    rank: int
    """Rank within the role, from 0."""
    node: str
    incarnation: int = 0
    """How often the rank was replaced within the attempt."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, if it still has this UID."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """None: the pod's own termination grace period."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the TrainingJob itself: its time to live is over."""

    uid: str


@dataclass(frozen=True, slots=True)
class SetNodeHealth:
    """Write a node's health; create it when there was none."""

    node: str
    node_uid: str
    resource_version: str | None
    """The version that this was made from, and is valid for; None: there was none."""
    status: NodeHealthStatus


WorkloadStatusChange = AnswerChecks | SetPodsReady | ReclaimPods | ReleaseQuota | FinishWorkload
"""Made from one version of a Workload, and valid for that version only."""

Action = (
    CreateWorkload
    | SetWorkloadActive
    | WorkloadStatusChange
    | DeleteWorkload
    | EnsureService
    | CreatePod
    | DeletePod
    | DeleteJob
    | SetNodeHealth
)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A Kubernetes Event to be recorded on the job.

    ``key`` names the occurrence (for instance the attempt): the same reason and key are emitted
    once per job, however often the decision that asks for it is made.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one decision about one job."""

    actions: tuple[Action, ...] = ()
    status: TrainingJobStatus | None = None
    """The whole status as it shall be (progress and checkpoint are ignored); None: unchanged."""
    commit: bool = False
    """True: write the status first, guarded by resourceVersion, and decide again."""
    events: tuple[JobEvent, ...] = ()
    requeue_after: float | None = None
    """Seconds until the job must be looked at again, if nothing happens before."""

    def __post_init__(self) -> None:
        if self.commit and (self.actions or self.status is None):
            raise ValueError("a commit holds a status and no actions")


NOTHING = Plan()
