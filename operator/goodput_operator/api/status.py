"""``TrainingJob.status``: what the operator has seen and decided.

Two field managers write it. The reconciler owns everything but ``progress`` and ``checkpoint``;
these two belong to the progress endpoint, which persists them as the workers report.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from goodput_operator.api.base import ApiModel
from goodput_operator.api.failure_rules import RuleAction
from goodput_operator.api.node_health import FailureKind

MAX_ATTEMPT_RECORDS = 10

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC. Microseconds are kept where a duration is made of two of them."""


class Phase(StrEnum):
    """One word for people; machines read the conditions."""

    PENDING = "Pending"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Cause(StrEnum):
    """Why an attempt ended before the job was done. Each has its own count."""

    CRASH = "crash"
    INFRASTRUCTURE = "infrastructure"
    PREEMPTION = "preemption"
    HANG = "hang"
    POWER_SHED = "powerShed"
    MIGRATION = "migration"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "Succeeded"
    CRASHED = "Crashed"
    INFRASTRUCTURE_LOST = "InfrastructureLost"
    PREEMPTED = "Preempted"
    HUNG = "Hung"
    MIGRATED = "Migrated"
    POWER_SHED = "PowerShed"
    EVICTED = "Evicted"
    SUSPENDED = "Suspended"
    RESIZED = "Resized"
    UNSCHEDULABLE = "Unschedulable"
    KUEUE_NOT_CONFIGURED = "KueueNotConfigured"
    DEADLINE_EXCEEDED = "DeadlineExceeded"


class Condition(ApiModel):
    """A condition with the meaning of ``metav1.Condition``."""

    type: str = Field(max_length=316, description="Type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(max_length=1024, description="Why, in one word for machines.")
    message: str = Field(default="", max_length=32768, description="Why, in words for people.")
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that it is about."
    )


class RolePlacement(ApiModel):
    """Nodes of one role's ranks, in rank order, run-length encoded.

    ``"0*4,2*4"`` puts ranks 0 to 3 on the first node of the placement's table and ranks 4 to 7 on
    the third.
    """

    name: str = Field(description="Name of the role.")
    nodes: str = Field(
        description="Indices into the placement's nodes, each with a count, as 0*4,2*4."
    )
    succeeded: str | None = Field(
        default=None,
        description="Ranks that have succeeded in this attempt, as 0-3,7: their pods may go.",
    )
    incarnations: str | None = Field(
        default=None,
        description="Ranks that were replaced within the attempt, and how often, as 3:1,7:2.",
    )


class Placement(ApiModel):
    """The committed placement of the current attempt: written before any of its pods exists."""

    attempt: int = Field(description="The attempt that it places.")
    nodes: tuple[str, ...] = Field(description="Table of the nodes that are used.")
    roles: tuple[RolePlacement, ...] = Field(description="Where the ranks of each role are.")
    resume_step: int = Field(default=0, description="Lower bound of the step to resume from.")
    committed_at: Time = Field(description="When it was decided.")
    created_at: Time | None = Field(
        default=None, description="When all pods of the attempt had been created."
    )
    replaced_at: Time | None = Field(
        default=None, description="When ranks were last replaced within the attempt."
    )
    replacing: bool = Field(
        default=False, description="The pods of the ranks replaced last are yet to be created."
    )
    bound_at: Time | None = Field(
        default=None, description="When all pods of the attempt were bound to their nodes."
    )
    running_at: Time | None = Field(
        default=None, description="When all ranks of the attempt were running for the first time."
    )


class FiredRule(ApiModel):
    """The rule that matched a failure."""

    index: int = Field(description="Its place in spec.faultTolerance.rules, from 0.")
    action: RuleAction


class Blame(ApiModel):
    """The nodes that an attempt's end is put down to, for their NodeHealth."""

    kind: FailureKind
    nodes: tuple[str, ...] = Field(description="Names of the nodes.")
    counted: bool = Field(
        default=False, description="Whether their NodeHealth has it, once and for all."
    )


class AttemptRecord(ApiModel):
    """What became of one attempt; the newest are kept."""

    attempt: int = Field(description="Number of the attempt.")
    outcome: Outcome
    cause: Cause | None = None
    rule: FiredRule | None = Field(
        default=None, description="The rule of spec.faultTolerance that decided about its failure."
    )
    message: str = Field(default="", description="What happened, with the rank and node.")
    placed_at: Time = Field(description="When its placement was committed.")
    running_at: Time | None = Field(default=None, description="When all its ranks were running.")
    failed_at: Time | None = Field(
        default=None, description="When the failure happened, which is seen later."
    )
    ended_at: Time = Field(description="When it was over.")
    wait_seconds: float = Field(
        default=0.0, description="For how long the next attempt was then held back."
    )
    replicas: int | None = Field(default=None, description="How many ranks it had, of all roles.")
    nodes: tuple[str, ...] = Field(default=(), description="The nodes that it ran on.")
    lost_nodes: tuple[str, ...] = Field(default=(), description="Those of them that were lost.")
    blame: Blame | None = None
    resume_step: int = Field(default=0, description="The step that it was to resume from.")
    last_step: int | None = Field(
        default=None, description="The last step that was reported in this attempt."
    )


class Replacement(ApiModel):
    """Ranks that were replaced while the others of their attempt went on."""

    attempt: int = Field(description="The attempt.")
    ranks: str = Field(description="The ranks, as worker-3, worker-7.")
    cause: Cause
    rule: FiredRule | None = Field(
        default=None, description="The rule of spec.faultTolerance that decided about it."
    )
    message: str = Field(default="", description="What happened, with the rank and node.")
    at: Time = Field(description="When it was decided.")


class ExcludedNode(ApiModel):
    """A node on which a rank could not bind, or that the gang has left; left out until then."""

    node: str = Field(description="Name of the node.")
    message: str = Field(description="Why the rank could not bind, or had to leave.")
    until: Time = Field(description="When it is planned for again.")


class Move(ApiModel):
    """The gang is to leave these nodes after a last checkpoint; cleared when it has, or need not.

    The workers are asked for that checkpoint by the whole seconds of ``since``.
    """

    reason: str = Field(description="Why, in one word for machines.")
    message: str = Field(description="Why, in words for people.")
    nodes: tuple[str, ...] = Field(description="The nodes to leave.")
    since: Time = Field(description="When it was decided.")
    deadline: Time = Field(description="When it leaves without a new checkpoint.")


class Growth(ApiModel):
    """A gang that is smaller than asked for is to have more ranks; cleared when it has, or cannot.

    The workers are asked for a checkpoint by the whole seconds of ``asked_at``.
    """

    room_since: Time = Field(description="Since when there has been room on nodes for more ranks.")
    workload: str | None = Field(
        default=None, description="The Workload that asks Kueue for their quota."
    )
    asked_at: Time | None = Field(
        default=None, description="When the workers were asked for a checkpoint: it has the quota."
    )
    deadline: Time | None = Field(
        default=None, description="When it restarts without a new checkpoint."
    )


class Requeue(ApiModel):
    """The job gives its quota back and queues again; cleared when the quota is released."""

    reason: str = Field(description="Why, in one word for machines.")
    message: str = Field(description="Why, in words for people.")
    since: Time = Field(description="When it was decided.")
    not_before: Time = Field(description="When the job queues again at the earliest.")


class Restarts(ApiModel):
    """Restarts by cause."""

    crash: int = Field(default=0, description="After a container failed.")
    infrastructure: int = Field(default=0, description="After a node or a pod was lost.")
    preemption: int = Field(
        default=0, description="After a job or a pod of higher priority took the place."
    )
    hang: int = Field(default=0, description="After the ranks made no progress for too long.")
    power_shed: int = Field(default=0, description="After a power budget was lowered.")
    migration: int = Field(default=0, description="After its nodes were to be freed.")

    def of(self, cause: Cause) -> int:
        """How many this cause has."""
        return int(getattr(self, _FIELDS[cause]))

    def plus(self, cause: Cause, more: int = 1) -> "Restarts":
        """With one more of this cause, or ``more`` of them; never below zero."""
        return self.model_copy(update={_FIELDS[cause]: max(0, self.of(cause) + more)})


_FIELDS = {cause: "power_shed" if cause is Cause.POWER_SHED else cause.value for cause in Cause}


class Recovery(ApiModel):
    """Seconds between a failure and the first new step, by stage."""

    attempt: int = Field(description="The attempt that trains again.")
    cause: Cause | None = None
    detect: float = Field(description="Until the failure was seen and recorded.")
    wait: float = Field(description="Held back, after crashes or short attempts in a row.")
    place: float = Field(description="Until a place was found and recorded.")
    create: float = Field(description="Until all pods were created.")
    bind: float = Field(description="Until all pods were bound to their nodes.")
    start: float = Field(description="Until all ranks were ready: images, init containers.")
    restore: float | None = Field(
        default=None,
        description="Until the first new step: rendezvous, compilation, reading the checkpoint.",
    )
    total: float = Field(description="All of these together.")


class Progress(ApiModel):
    """The newest report of the workers, at most 30 s old while they report."""

    attempt: int = Field(description="The attempt that reported.")
    step: int = Field(description="The newest step.")
    total_steps: int | None = Field(default=None, description="Steps after which the job is done.")
    loss: float | None = Field(default=None, description="Loss at the newest step.")
    rank: int = Field(default=0, description="Rank, over all roles, that reported.")
    reported_at: Time = Field(description="When it was reported.")
    resumed_from_step: int | None = Field(
        default=None, description="The step that this attempt really resumed from."
    )
    first_step_at: Time | None = Field(
        default=None, description="When this attempt reported its first step."
    )
    corrupt_step: int | None = Field(
        default=None,
        description="Newest step whose checkpoint this attempt passed over as damaged.",
    )


class DurableCheckpoint(ApiModel):
    """The newest checkpoint that a worker reported as durable."""

    step: int = Field(description="The step that it holds.")
    attempt: int = Field(description="The attempt that saved it.")
    saved_at: Time = Field(description="When it was reported.")
    stall_seconds: float | None = Field(
        default=None, description="How long saving it kept the job from training."
    )
    mean_stall_seconds: float | None = Field(
        default=None, description="The same, averaged over the last saves of the job."
    )


class CheckpointInterval(ApiModel):
    """The interval that the workers are told under intervalPolicy Auto, and what it is made of."""

    seconds: int = Field(description="Seconds between checkpoints.")
    stall_seconds: float = Field(description="What a save costs, as the workers measured it.")
    mean_seconds_to_failure: int = Field(
        description="How long this gang is expected to run before it is lost."
    )
    failures: int = Field(description="Lost nodes and pods of all jobs that this rests on.")
    node_hours: float = Field(description="Hours of nodes of all jobs that this rests on.")
    since: Time = Field(description="When it was published.")


class TrainingJobStatus(ApiModel):
    """The observed state of a TrainingJob."""

    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that the status is about."
    )
    phase: Phase | None = None
    reason: str | None = Field(default=None, description="Why the job is in its phase.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="What is true of the job, for machines.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    workload: str | None = Field(default=None, description="Name of the Kueue Workload.")
    replicas: int | None = Field(default=None, description="Ranks of all roles.")
    ready_replicas: int | None = Field(default=None, description="Ranks that are ready.")
    ready: str | None = Field(default=None, description="Ready ranks of all ranks, as 7/8.")
    attempt: int = Field(default=0, description="Number of the newest attempt; 0 before the first.")
    placement: Placement | None = None
    attempts: tuple[AttemptRecord, ...] = Field(
        default=(),
        max_length=MAX_ATTEMPT_RECORDS,
        description="The newest attempts that have ended.",
    )
    replacements: tuple[Replacement, ...] = Field(
        default=(),
        max_length=MAX_ATTEMPT_RECORDS,
        description="The newest replacements of single ranks, under restartScope Failed.",
    )
    restarts: Restarts = Field(default_factory=Restarts, description="All restarts so far.")
    charged: Restarts = Field(
        default_factory=Restarts,
        description=(
            "Restarts that count against the budgets of spec.faultTolerance: those since an "
            "attempt last trained for forgiveAfterSeconds, without what a rule did not count."
        ),
    )
    hang_step: int | None = Field(
        default=None,
        description=(
            "The highest step before the newest hang: one beyond it clears what is charged for "
            "hangs."
        ),
    )
    restart_at: Time | None = Field(default=None, description="Earliest start of the next attempt.")
    placement_failures: int = Field(
        default=0, description="Placements withdrawn in a row since the last one that started."
    )
    excluded_nodes: tuple[ExcludedNode, ...] = Field(
        default=(),
        description="Nodes left out for now: ranks could not bind there, or had to leave.",
    )
    move: Move | None = None
    move_not_before: Time | None = Field(
        default=None, description="After a move was called off: the earliest time of another."
    )
    growth: Growth | None = None
    requeue: Requeue | None = None
    waiting_since: Time | None = Field(
        default=None, description="Since when the job has quota but no placement."
    )
    active_seconds: float = Field(
        default=0.0,
        description="Seconds from the creation of the pods to the end, over all ended attempts.",
    )
    node_seconds: float = Field(
        default=0.0, description="The same, times the nodes that each attempt was on."
    )
    start_time: Time | None = Field(
        default=None, description="When the pods of the first attempt had been created."
    )
    completion_time: Time | None = Field(default=None, description="When the job was over.")
    checkpoint_interval: CheckpointInterval | None = None
    recovery: Recovery | None = Field(
        default=None, description="How the newest recovery from a failure spent its time."
    )
    progress: Progress | None = None
    checkpoint: DurableCheckpoint | None = None
