"""Names that other people's objects and tools see: API group, labels, reasons.

Everything here is part of the contract with users; renaming one is a breaking change.
"""

from typing import Final

GROUP: Final = "goodput.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TrainingJob"
PLURAL: Final = "trainingjobs"
NODE_HEALTH_KIND: Final = "NodeHealth"
NODE_HEALTH_PLURAL: Final = "nodehealths"

FIELD_MANAGER: Final = "goodput-operator"
"""Owns everything the reconciler writes, including all of the status but the two fields below."""
PROGRESS_FIELD_MANAGER: Final = "goodput-progress"
"""Owns ``status.progress`` and ``status.checkpoint``: what the workers report."""

# Labels and annotations on the pods, Services and Workloads of a job.
LABEL_JOB: Final = f"{GROUP}/job"
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_INCARNATION: Final = f"{GROUP}/incarnation"
LABEL_RANK: Final = f"{GROUP}/rank"
ANNOTATION_PROGRESS_CA: Final = f"{GROUP}/progress-ca"
ANNOTATION_DEACTIVATED: Final = f"{GROUP}/deactivated"
"""Set on a Workload in the same write that deactivates it: only then may we activate it again."""

# Kueue's own names.
KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
KUEUE_API_VERSION: Final = f"{KUEUE_GROUP}/{KUEUE_VERSION}"
LABEL_QUEUE: Final = f"{KUEUE_GROUP}/queue-name"
LABEL_PRIORITY_CLASS: Final = f"{KUEUE_GROUP}/priority-class"
KUEUE_ADMISSION_GATE: Final = f"{KUEUE_GROUP}/admission"
CHECK_CONTROLLER: Final = f"{GROUP}/power"
"""``spec.controllerName`` of the AdmissionChecks that this operator answers."""

# Taints and labels of Kubernetes that decide about a node.
TAINT_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
TAINT_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
LABEL_RACK: Final = f"{GROUP}/rack"

PROGRESS_AUDIENCE: Final = f"{GROUP}/progress"
PROGRESS_MOUNT_PATH: Final = "/var/run/secrets/goodput.dev"
COORDINATOR_PORT: Final = 29400
"""The port on which rank 0 of the first role hosts the rendezvous, unless the template sets one."""


class ConditionType:
    """Types of ``status.conditions``; each appears at most once."""

    ADMITTED: Final = "Admitted"
    RUNNING: Final = "Running"
    SUSPENDED: Final = "Suspended"
    COMPLETE: Final = "Complete"
    FAILED: Final = "Failed"
    DEGRADED: Final = "Degraded"
    """Whether the gang has fewer ranks than the spec asks for. It appears with the first such."""
    MIGRATING: Final = "Migrating"
    """Whether the gang is about to leave nodes. It appears with the first such node."""
    STALLED: Final = "Stalled"
    """Whether the ranks made no step for too long, and none since. It appears with the first hang.
    """


class Reason:
    """Machine-readable reasons of conditions and Events."""

    # Waiting
    QUEUE_MISSING: Final = "QueueMissing"
    INVALID_SPEC: Final = "InvalidSpec"
    WAITING_FOR_QUOTA: Final = "WaitingForQuota"
    WAITING_FOR_NODES: Final = "WaitingForNodes"
    UNSCHEDULABLE: Final = "Unschedulable"
    KUEUE_NOT_CONFIGURED: Final = "KueueNotConfigured"
    INADMISSIBLE: Final = "Inadmissible"
    WAITING_FOR_CHECKS: Final = "WaitingForChecks"
    DEACTIVATED: Final = "Deactivated"
    API_ERROR: Final = "APIError"
    NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
    WEBHOOK_FAILING: Final = "WebhookFailing"
    UNKNOWN_PRIORITY_CLASS: Final = "UnknownPriorityClass"
    VOLUME_CLAIM_MISSING: Final = "VolumeClaimMissing"
    VOLUME_NOT_SHARED: Final = "VolumeNotShared"
    UNSUPPORTED_RESOURCE_CLAIMS: Final = "UnsupportedResourceClaims"
    # Life
    ADMITTED: Final = "Admitted"
    QUOTA_RELEASED: Final = "QuotaReleased"
    QUOTA_HELD: Final = "QuotaHeld"
    STARTING: Final = "Starting"
    ALL_RANKS_READY: Final = "AllRanksReady"
    RANKS_NOT_READY: Final = "RanksNotReady"
    RANKS_REPLACED: Final = "RanksReplaced"
    CLUSTER_SILENT: Final = "ClusterSilent"
    BACKING_OFF: Final = "BackingOff"
    SUSPENDED_BY_USER: Final = "SuspendedByUser"
    EVICTED: Final = "Evicted"
    # Gangs with fewer ranks than asked for
    QUOTA_FOR_PART: Final = "QuotaForPart"
    ROOM_FOR_PART: Final = "RoomForPart"
    WHOLE_GANG: Final = "WholeGang"
    # Nodes that a gang has to leave
    NODE_CORDONED: Final = "NodeCordoned"
    NODE_UNHEALTHY: Final = "NodeUnhealthy"
    WAITING_FOR_ROOM: Final = "WaitingForRoom"
    NOTHING_TO_LEAVE: Final = "NothingToLeave"
    MIGRATED: Final = "Migrated"
    # Steps
    NO_PROGRESS: Final = "NoProgress"
    PROGRESSING: Final = "Progressing"
    # Ends
    COMPLETED: Final = "Completed"
    CRASH_BUDGET_EXHAUSTED: Final = "CrashBudgetExhausted"
    INFRASTRUCTURE_BUDGET_EXHAUSTED: Final = "InfrastructureBudgetExhausted"
    PREEMPTION_BUDGET_EXHAUSTED: Final = "PreemptionBudgetExhausted"
    HANG_BUDGET_EXHAUSTED: Final = "HangBudgetExhausted"
    FAILURE_RULE: Final = "FailureRule"
    DEADLINE_EXCEEDED: Final = "DeadlineExceeded"


class EventReason:
    """Reasons of the Events that tell a job's story, in the order in which they usually happen."""

    QUEUED: Final = "Queued"
    ADMITTED: Final = "Admitted"
    GANG_PLACED: Final = "GangPlaced"
    DEGRADED: Final = "Degraded"
    GROWING: Final = "Growing"
    RESIZED: Final = "Resized"
    GANG_STARTED: Final = "GangStarted"
    NOT_STARTED: Final = "NotStarted"
    NODE_LOST: Final = "NodeLost"
    RANK_CRASHED: Final = "RankCrashed"
    POD_LOST: Final = "PodLost"
    RANKS_HUNG: Final = "RanksHung"
    RESTARTING: Final = "Restarting"
    RANKS_REPLACED: Final = "RanksReplaced"
    RESUMED: Final = "Resumed"
    MIGRATING: Final = "Migrating"
    MIGRATION_CANCELLED: Final = "MigrationCancelled"
    MIGRATED: Final = "Migrated"
    EVICTED: Final = "Evicted"
    UNSCHEDULABLE: Final = "Unschedulable"
    KUEUE_NOT_CONFIGURED: Final = "KueueNotConfigured"
    QUOTA_RELEASED: Final = "QuotaReleased"
    SUSPENDED: Final = "Suspended"
    COMPLETED: Final = "Completed"
    FAILED: Final = "Failed"
    INVALID: Final = "Invalid"
