"""The settings that decisions depend on, as plain numbers (seconds unless said otherwise)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How patient the operator is. Set once at start-up from the configuration."""

    bind_seconds: float = 60.0
    """How long a created pod may stay unbound before its gang is withdrawn."""
    start_seconds: float = 30.0
    """How long an admitted gang may be without pods before an Event says so."""
    placement_tries: int = 3
    """Withdrawn placements in a row after which the quota is given back."""
    hold_seconds: float = 60.0
    """How long a job may hold quota without a placement before it gives it back."""
    shrink_seconds: float = 30.0
    """How long a job with ``minReplicas`` waits for room for all ranks that it has quota for."""
    grow_after_seconds: float = 600.0
    """How long a gang that is smaller than asked for runs before it is made larger."""
    grow_room_seconds: float = 60.0
    """How long there must have been room for more ranks before."""
    grow_per_hour: int = 3
    """How often in an hour a job is made larger at most."""
    exclusion_seconds: float = 300.0
    """How long a node on which a rank could not bind is left out for this job."""
    requeue_base_seconds: float = 10.0
    """Wait after giving quota back, doubled each time in a row."""
    requeue_max_seconds: float = 300.0
    restart_grace_seconds: int = 5
    """Grace of the survivors of a broken gang: no collective save is possible any more."""
    attribution_seconds: float = 90.0
    """A crash is put down to a node that turns out lost within this time of it."""
    node_gone_seconds: float = 60.0
    """Pods on a node silent for this long count as gone for the quota."""
    settle_seconds: float = 2.0
    """A node that is marked as silent is acted on so much later: others may be silent with it."""
    silence_window_seconds: float = 60.0
    """Nodes that fall silent within so short a time do so together."""
    silence_hold_seconds: float = 300.0
    """When most of the cluster falls silent at once, no node is taken for lost for so long."""
    failures_per_node_day: float = 6.5e-3
    """Lost nodes that are expected before this cluster has seen any (RSC-1, arXiv:2410.21680)."""
    failure_prior_weight: float = 1.0
    """How many failures of its own it takes for the cluster to weigh as much as that."""
    bad_node_conditions: tuple[tuple[str, str], ...] = (
        ("KernelDeadlock", "True"),
        ("ReadonlyFilesystem", "True"),
        ("XfsShutdown", "True"),
        ("GPUMissing", "True"),
        ("AcceleratedHardwareReady", "False"),
    )
    """Types of node conditions, each with the status in which no rank may be on the node."""
    move_seconds: float = 120.0
    """How long ranks have for a checkpoint before they leave a node, beside their own grace."""
    move_pause_seconds: float = 60.0
    """After a move was called off, none is begun for so long: cordons and conditions may flap."""
    node_penalty_half_life_seconds: float = 86_400.0
    """After this time a node's failure weighs half as much."""
    node_penalty_avoid: float = 2.0
    """Nodes with at least this score are used only when there is no other room."""
    node_avoid_seconds: float = 30.0
    """How long a job waits for other room before it takes nodes that are avoided."""
    recheck_seconds: float = 30.0
    """How often a waiting job is looked at when no event asks for it."""


DEFAULT_POLICY = Policy()
