"""Gangs that may be smaller than asked for: ``minReplicas`` of one role.

1. Kueue may admit the role in part (``minCount``): what it has admitted is what is placed.
2. If not even that has room on nodes, the job waits for a while, as any job does, and then runs
   with as many ranks as there is room for, but no fewer than ``minReplicas``.
3. Quota that is held for more ranks than the attempt has is given back while it runs
   (``status.reclaimablePods`` of the Workload), so that others can use it.
"""

from dataclasses import replace

from goodput_operator.api.status import Outcome
from goodput_operator.domain import size
from goodput_operator.domain.context import Context
from goodput_operator.domain.placement.gang import Placed
from goodput_operator.domain.plan import ReclaimPods
from goodput_operator.domain.restart import last_record
from goodput_operator.domain.room import find_place
from goodput_operator.domain.verdict import Verdict


def patience(context: Context) -> float | None:
    """Seconds for which a job waits for room for all ranks that it has quota for.

    None when it cannot run with fewer. No longer than it may hold its quota without a place.
    """
    role, policy = size.elastic_role(context.spec), context.policy
    if role is None or size.granted(context.spec, context.workload)[role.name] <= size.least(role):
        return None
    record = last_record(context)
    if record is not None and record.outcome is Outcome.RESIZED:
        return 0.0  # It stopped for what room there is.
    return min(policy.shrink_seconds, policy.hold_seconds)


def find_smaller(context: Context) -> Placed | None:
    """A place for as many ranks as there is room for, if there is none for all.

    Fewer ranks fit where more do, so that the number is found by halving.
    """
    role, best = size.elastic_role(context.spec), _smallest(context)
    if role is None or best is None:
        return None
    counts = size.granted(context.spec, context.workload)
    low, high = size.least(role) + 1, counts[role.name] - 1
    while low <= high:
        middle = (low + high + 1) // 2
        outcome = find_place(context, counts={**counts, role.name: middle})
        if isinstance(outcome, Placed):
            best, low = outcome, middle + 1
        else:
            high = middle - 1
    return best


def fits_smaller(context: Context) -> bool:
    """Whether there is a place for fewer ranks than there is quota for."""
    return _smallest(context) is not None


def _smallest(context: Context) -> Placed | None:
    """A place for as few ranks as may run, if that is fewer than there is quota for."""
    role, counts = size.elastic_role(context.spec), size.granted(context.spec, context.workload)
    if role is None or counts[role.name] <= size.least(role):
        return None
    outcome = find_place(context, counts={**counts, role.name: size.least(role)})
    return outcome if isinstance(outcome, Placed) else None


def giving_back(context: Context, verdict: Verdict) -> Verdict:
    """The verdict, and with it the quota of ranks that the attempt does not have."""
    workload, placement = context.workload, context.placement
    if verdict.commit or placement is None or workload is None or not workload.is_admitted:
        return verdict
    if verdict.changes_workload:
        return verdict
    growth = context.status.growth
    if growth is not None and growth.workload == workload.name:
        return verdict  # It has just got this quota, and is about to use it.
    placed, granted = size.placed(context.spec, placement), size.granted(context.spec, workload)
    counts = tuple(
        (role.name, role.replicas - placed[role.name])
        for role in context.spec.roles
        if placed[role.name] < granted[role.name]
    )
    if not counts:
        return verdict
    action = ReclaimPods(workload.name, workload.resource_version, counts)
    return replace(verdict, actions=(*verdict.actions, action))
