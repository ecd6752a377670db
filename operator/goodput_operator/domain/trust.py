"""Which nodes a job uses last, and how long it waits for others."""

from goodput_operator.domain import blame, penalty
from goodput_operator.domain.context import Context
from goodput_operator.domain.placement.gang import AVOIDED, USED_LAST


def levels(context: Context) -> dict[str, int]:
    """Nodes that are used last, by how much so: penalised ones, and the job's own suspects."""
    snapshot, policy = context.snapshot, context.policy
    found = dict.fromkeys(blame.suspects(context), USED_LAST)
    worth = penalty.scores(snapshot.health.values(), snapshot.nodes, context.now, policy)
    for name, score in worth.items():
        if score >= policy.node_penalty_avoid:
            found[name] = AVOIDED
        elif score >= penalty.USED_LAST:
            found[name] = USED_LAST
    return found


def patience(context: Context) -> float:
    """Seconds for which a job that has quota waits for other nodes than those that are avoided.

    Shorter than it may hold its quota without a place: else it would give it back for ever. 0 when
    no node is avoided.
    """
    if AVOIDED not in levels(context).values():
        return 0.0
    return min(context.policy.node_avoid_seconds, context.policy.hold_seconds / 2)
