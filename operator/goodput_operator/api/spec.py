"""``TrainingJob.spec``: what a user asks for."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from goodput_operator.api import rules
from goodput_operator.api.base import ApiModel
from goodput_operator.api.failure_rules import MAX_RULES, FailureRule
from goodput_operator.api.template import POD_TEMPLATE

MAX_ROLES = 16
MAX_REPLICAS = 10_000
MAX_SECONDS = 10 * 365 * 24 * 3600

Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
DnsSubdomain = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)]
PodTemplate = Annotated[dict[str, Any], WithJsonSchema(POD_TEMPLATE)]
"""Not modelled: it is handed on to Kubernetes with every field that it has."""


class Framework(StrEnum):
    """Which rendezvous environment is injected beside the ``GOODPUT_*`` variables."""

    PYTORCH = "PyTorch"
    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    PLAIN = "Plain"


class RestartScope(StrEnum):
    """What is replaced when a rank is lost."""

    GANG = "Gang"
    FAILED = "Failed"


class IntervalPolicy(StrEnum):
    """Who chooses how often to save."""

    FIXED = "Fixed"
    AUTO = "Auto"


class PodRetention(StrEnum):
    """Which pods stay for their logs once the job is over."""

    FAILED = "Failed"
    ALL = "All"
    NONE = "None"


class Role(ApiModel):
    """A set of identical ranks of the gang."""

    model_config = ConfigDict(json_schema_extra=rules.ROLE_RULES)

    name: Annotated[DnsLabel, Field(description="Name of the role, unique within the job.")]
    replicas: int = Field(
        default=1, ge=1, le=MAX_REPLICAS, description="Number of ranks in this role."
    )
    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REPLICAS,
        description=(
            "When there is no quota or no room for all replicas, the job runs with as many as "
            "there is room for, but no fewer than this. One role at most may set it. "
            "All replicas or none when absent."
        ),
    )
    completes_job: bool = Field(
        default=False,
        description=(
            "The job is complete when every rank of each role that sets this has succeeded. "
            "When no role sets it, all ranks of all roles must succeed."
        ),
    )
    template: PodTemplate = Field(
        description=(
            "Pod template of a rank; the operator adds its labels, environment, volumes and node. "
            "restartPolicy is Never: a rank is restarted with its gang, not by its kubelet."
        ),
    )


class CheckpointVolume(ApiModel):
    """A claim mounted into every container of the job."""

    claim_name: DnsSubdomain = Field(
        description=(
            "A PersistentVolumeClaim in the job's namespace. Ranks on several nodes share it, so "
            "its access mode must be ReadWriteMany then."
        )
    )
    mount_path: str = Field(
        pattern=r"^(/[^/:]+)+$",
        max_length=rules.MAX_PATH,
        description="Where the claim is mounted in the containers, without a slash at its end.",
    )


class Checkpoint(ApiModel):
    """Where checkpoints go and how much time a last one may take."""

    model_config = ConfigDict(json_schema_extra=rules.CHECKPOINT_RULES)

    uri: str = Field(
        min_length=1,
        max_length=rules.MAX_PATH,
        pattern=r"^(/|gs://.|s3://.)",
        description=(
            "Parent of the job's own checkpoint directory (URI/NAME-UID): "
            "an absolute path on a shared volume, or gs:// or s3://."
        ),
    )
    volume: CheckpointVolume | None = Field(
        default=None, description="The volume that holds the uri, if that is a path."
    )
    interval_policy: IntervalPolicy = Field(
        default=IntervalPolicy.FIXED,
        description=(
            "Fixed: intervalSeconds. Auto: the operator chooses, from what a save costs and from "
            "how often gangs are lost here; intervalSeconds holds until a save was measured."
        ),
    )
    interval_seconds: Seconds = Field(
        default=600, description="Seconds between checkpoints, told to the workers."
    )
    grace_period_seconds: int = Field(
        default=30,
        ge=0,
        le=3600,
        description="Seconds that a rank has for a last save when it is asked to stop.",
    )


class Backoff(ApiModel):
    """Delay before a restart: base × 2^(restarts so far), at most the maximum."""

    model_config = ConfigDict(json_schema_extra=rules.BACKOFF_RULES)

    base_seconds: Seconds = Field(default=10, description="Delay before the first restart.")
    max_seconds: Seconds = Field(default=300, description="The longest delay between restarts.")


class FaultTolerance(ApiModel):
    """What the job survives, and how often."""

    restart_scope: RestartScope = Field(
        default=RestartScope.GANG,
        description=(
            "Gang: all ranks restart together. Failed: only the ranks that were lost are replaced, "
            "for frameworks whose ranks find together again by themselves; if rank 0 of the first "
            "role is lost, which hosts the rendezvous, the whole gang restarts all the same."
        ),
    )
    max_crash_restarts: int = Field(
        default=3,
        ge=0,
        le=10_000,
        description="Restarts after a container failed, before the job fails.",
    )
    max_infrastructure_restarts: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Restarts after a node or pod was lost. Unlimited when absent.",
    )
    max_preemption_restarts: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Restarts after something of higher priority took the place. "
        "Unlimited when absent.",
    )
    max_hang_restarts: int = Field(
        default=3,
        ge=0,
        le=10_000,
        description=(
            "Restarts in a row after the ranks hung, before the job fails. A step beyond all "
            "before clears them."
        ),
    )
    progress_timeout_seconds: Seconds | None = Field(
        default=None,
        description=(
            "Seconds without a new step, while all ranks run, after which the gang hangs and is "
            "restarted. Longer than any step, save, evaluation or end of the run may take. Hangs "
            "are not looked for when absent."
        ),
    )
    first_step_timeout_seconds: Seconds = Field(
        default=1800,
        description=(
            "The same until the first new step of an attempt, and after ranks were replaced: "
            "reading the checkpoint and compiling take longer. Without progressTimeoutSeconds it "
            "has no meaning."
        ),
    )
    forgive_after_seconds: int = Field(
        default=6 * 3600,
        ge=0,
        le=MAX_SECONDS,
        description=(
            "An attempt that has trained for so long clears what is charged against the budgets. "
            "0: nothing is ever forgiven."
        ),
    )
    rules: tuple[FailureRule, ...] = Field(
        default=(),
        max_length=MAX_RULES,
        description=(
            "What to do about failures that can be told by their marks; the first that matches "
            "wins. Without a match a crash counts against maxCrashRestarts, and a lost node or pod "
            "always recovers. A lost node is never judged by a rule."
        ),
    )
    crash_backoff: Backoff = Field(
        default_factory=Backoff,
        description="Delay before a restart that a crash caused. Lost nodes restart at once.",
    )


class TrainingJobSpec(ApiModel):
    """What to train, on how many ranks, and what to do when something fails."""

    model_config = ConfigDict(json_schema_extra=rules.SPEC_RULES)

    suspend: bool = Field(
        default=False, description="True stops the job and gives its quota back; false resumes it."
    )
    framework: Framework = Field(
        default=Framework.PLAIN,
        description=(
            "Whose rendezvous environment the ranks get, beside the GOODPUT_* variables: MASTER_* "
            "and PET_* for PyTorch, JAX_* for JAX, TF_CONFIG for TensorFlow. "
            "Can change only while the job is suspended."
        ),
    )
    roles: tuple[Role, ...] = Field(
        min_length=1,
        max_length=MAX_ROLES,
        description=(
            "The roles of the gang, in rank order: rank 0 is the first of the first role, and "
            "hosts the rendezvous. Can change only while the job is suspended."
        ),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    checkpoint: Checkpoint | None = Field(
        default=None,
        description=(
            "Where checkpoints go. Without it a restart begins at step 0. "
            "Can change only while the job is suspended."
        ),
    )
    fault_tolerance: FaultTolerance = Field(
        default_factory=FaultTolerance, description="Restart scope, budgets and backoff."
    )
    active_deadline_seconds: Seconds | None = Field(
        default=None,
        description="Seconds of running (not queued, not suspended) after which the job fails.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SECONDS,
        description="Seconds after its end when the job is deleted. Kept when absent.",
    )
    pod_retention: PodRetention = Field(
        default=PodRetention.ALL,
        description="Which finished pods of the last attempt stay until the job is deleted.",
    )
