"""How often to save: Young's interval, of what a save costs and of how often gangs are lost.

With C the time for which a save holds up training and M the mean time until the gang is lost, the
least is wasted at an interval of √(2·C·M) (J. W. Young, "A first order approximation to the optimum
checkpoint interval", Commun. ACM 17, 1974). C is what the workers measure. M comes from what this
cluster has seen: a Gamma prior on failures per node and hour, which every node-hour and every
failure of all jobs that are still known moves, plus what this very job does to itself.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from goodput_operator.api.spec import IntervalPolicy
from goodput_operator.api.status import CheckpointInterval
from goodput_operator.api.times import format_time
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import active_now
from goodput_operator.domain.model import JobView

HOUR = 3600.0
DAY = 24 * HOUR
LEAST_CHANGE = 0.2
"""Changes smaller than this share of what is published are not."""
MIN_SECONDS = 5
MIN_DUTY = 0.5
"""Share of the time that is left for training at the shortest interval: C over it, at most."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the cluster's jobs have lived through together."""

    node_hours: float
    failures: int
    """Lost to infrastructure: what would have hit any job on those nodes."""


def young(stall: float, mean_time_to_failure: float) -> float:
    """√(2·C·M) seconds, of a stall C and a mean time to failure M in seconds; at most M."""
    return min(sqrt(2 * stall * mean_time_to_failure), mean_time_to_failure)


def published(job: JobView) -> float | None:
    """Seconds between checkpoints that the workers are told; None without checkpoints."""
    if job.spec is None or job.spec.checkpoint is None:
        return None
    checkpoint = job.spec.checkpoint
    found = job.status.checkpoint_interval
    if checkpoint.interval_policy is IntervalPolicy.FIXED or found is None:
        return float(checkpoint.interval_seconds)
    return float(found.seconds)


def refreshed(context: Context) -> dict[str, Any]:
    """The field of the status to change, if the interval has changed enough to say so.

    Nothing while no worker has said what a save costs: then spec.checkpoint.intervalSeconds holds.
    """
    checkpoint, stored = context.spec.checkpoint, context.status.checkpoint_interval
    if checkpoint is None or checkpoint.interval_policy is IntervalPolicy.FIXED:
        return {"checkpoint_interval": None} if stored is not None else {}
    durable = context.status.checkpoint
    stall = durable.mean_stall_seconds if durable else None
    if stall is None:
        return {}
    exposure = exposed(context)
    mean = mean_seconds_to_failure(context, exposure)
    seconds = max(MIN_SECONDS, round(max(stall / (1 - MIN_DUTY), young(stall, mean))))
    if stored is not None and abs(seconds - stored.seconds) < LEAST_CHANGE * stored.seconds:
        return {}
    found = CheckpointInterval(
        seconds=seconds,
        stall_seconds=round(stall, 3),
        mean_seconds_to_failure=round(mean),
        failures=exposure.failures,
        node_hours=round(exposure.node_hours, 1),
        since=format_time(context.now),
    )
    return {"checkpoint_interval": found}


def exposed(context: Context) -> Exposure:
    """Node-hours and lost nodes and pods of all jobs that are still there."""
    seconds, failures = 0.0, 0
    for job in context.snapshot.jobs.values():
        status, placement = job.status, job.status.placement
        seconds += status.node_seconds
        failures += status.restarts.infrastructure
        if placement is not None:
            seconds += len(placement.nodes) * active_now(placement, context.now)
    return Exposure(seconds / HOUR, failures)


def mean_seconds_to_failure(context: Context, exposure: Exposure) -> float:
    """M of this gang on as many nodes as it is on: what befalls its nodes, and what it does itself.

    Its own crashes and hangs are its own: they say nothing about any other job, and another job's
    nothing about this one. Before there are any, none are expected.
    """
    policy, status = context.policy, context.status
    prior_hours = policy.failure_prior_weight / (policy.failures_per_node_day / 24)
    per_node = (policy.failure_prior_weight + exposure.failures) / (
        prior_hours + exposure.node_hours
    )
    nodes = len(context.placement.nodes) if context.placement else 1
    own = status.restarts.crash + status.restarts.hang
    active = status.active_seconds
    if context.placement is not None:
        active += active_now(context.placement, context.now)
    rate = nodes * per_node / HOUR + own / (active + DAY)
    return 1.0 / rate
