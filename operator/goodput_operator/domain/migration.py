"""Leaving nodes that are cordoned or unhealthy, at the price of as little work as can be.

1. ``status.move`` is committed: which nodes, why, since when, until when. The workers are asked for
   a checkpoint (``health.checkpoint_request``).
2. As soon as a checkpoint is durable that is newer than that, or at the deadline, the attempt ends
   as *Migrated*. That is a commit of its own; the pods are then stopped with their own grace, and
   the next placement finds the rest, without these nodes.

A gang that has nothing to save does not wait in between. A cordon is no reason to stop a gang that
has no place to go to: it stays, and says so. An unhealthy node is left all the same, at the
deadline, and the quota is given back, unless most nodes are said to be unhealthy. A move is called
off when nothing has to be left any more.
"""

from dataclasses import dataclass, replace

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, Move, Outcome, Phase, Requeue, TrainingJobStatus
from goodput_operator.api.times import format_micro_time, format_time, parse_time
from goodput_operator.domain import conditions, elastic, restart
from goodput_operator.domain.context import Context
from goodput_operator.domain.ending import ended
from goodput_operator.domain.health import Leaving, find_leaving
from goodput_operator.domain.placement.gang import Placed
from goodput_operator.domain.plan import JobEvent
from goodput_operator.domain.room import find_place
from goodput_operator.domain.silence import LEAST, SHARE
from goodput_operator.domain.verdict import ConditionChange, Verdict, unchanged

_MAX_NODES = 64
"""Nodes named in a move; all that are cordoned or unhealthy are left, whether named or not."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the health of its nodes means for the live attempt."""

    verdict: Verdict | None = None
    """What is to be done now."""
    condition: ConditionChange | None = None
    """What is to be said otherwise, beside whatever else is found."""
    look_again: float | None = None
    """Seconds until time alone changes this."""

    def told(self, verdict: Verdict) -> Verdict:
        """The verdict about all else, with this said beside it."""
        if verdict.commit:
            return verdict
        said = (self.condition,) if self.condition is not None else ()
        waits = [each for each in (verdict.requeue_after, self.look_again) if each is not None]
        return replace(
            verdict,
            conditions=(*verdict.conditions, *said),
            requeue_after=min(waits, default=None),
        )


def look(context: Context) -> Outlook:
    """Whether the live attempt has to leave nodes, and which step of it is next."""
    leaving, move = find_leaving(context), context.status.move
    if not leaving.nodes:
        if move is not None:
            return Outlook(_called_off(context, move, "no node has to be left any more"))
        return Outlook(condition=_nothing(context))
    if move is None:
        return _before(context, leaving)
    return _during(context, leaving, move)


def waits_for_room(status: TrainingJobStatus) -> bool:
    """Whether the job is on nodes that it should leave, and room elsewhere would matter to it."""
    if status.move is not None:
        return True
    found = conditions.find(status.conditions, c.ConditionType.MIGRATING)
    return found is not None and found.reason == c.Reason.WAITING_FOR_ROOM


def _before(context: Context, leaving: Leaving) -> Outlook:
    """Begin to move, or end what has not begun, or say why the gang stays."""
    placement, pause = context.placement, context.status.move_not_before
    if placement is not None and placement.created_at is None and not context.live_pods:
        return Outlook(_leave(context, leaving, None))
    room = _has_room(context, leaving)
    if not room and not _leaves_anyway(context, leaving):
        return _stays(context, leaving)
    if placement is not None and placement.running_at is None:
        # Nothing of it is worth waiting for. Without room its pods bind, or are withdrawn.
        return Outlook(_leave(context, leaving, None)) if room else Outlook()
    wait = parse_time(pause) - context.now if pause else 0.0
    if wait > 0:
        return Outlook(look_again=wait)
    return Outlook(_begin(context, leaving))


def _during(context: Context, leaving: Leaving, move: Move) -> Outlook:
    """Wait for the checkpoint, then go, or stay if there is no room any more."""
    left = parse_time(move.deadline) - context.now
    if left > 0 and not has_saved(context, move.since) and can_save(context):
        return Outlook(condition=_moving(move), look_again=left)
    if _has_room(context, leaving):
        return Outlook(_leave(context, leaving, None))
    if not _leaves_anyway(context, leaving):
        message = "there is no room for the whole gang elsewhere any more"
        return Outlook(_called_off(context, move, message))
    if left > 0:
        return Outlook(condition=_moving(move), look_again=left)
    smaller = elastic.fits_smaller(elsewhere(context))
    return Outlook(_leave(context, leaving, None if smaller else _give_back(context, leaving)))


def _leaves_anyway(context: Context, leaving: Leaving) -> bool:
    """Whether the gang leaves although it has no place to go to.

    For unhealthy nodes, unless most nodes are: then it is what tells so that is taken to be sick,
    and stopping every job for its word would be the greater damage.
    """
    nodes = context.snapshot.nodes.values()
    unhealthy = sum(node.bad is not None for node in nodes)
    most = unhealthy >= LEAST and unhealthy >= SHARE * len(nodes)
    return bool(leaving.unhealthy) and not most


def _begin(context: Context, leaving: Leaving) -> Verdict:
    deadline = save_deadline(context)
    after = " after a checkpoint" if can_save(context) else ""
    message = f"{leaving.told}: the gang leaves{after}, at the latest at {format_time(deadline)}"
    move = Move(
        reason=leaving.reason,
        message=message,
        nodes=leaving.nodes[:_MAX_NODES],
        since=format_micro_time(context.now),
        deadline=format_micro_time(deadline),
    )
    return unchanged(
        context,
        {"move": move, "move_not_before": None},
        (JobEvent("Normal", c.EventReason.MIGRATING, message, key=move.since),),
        (_moving(move),),
    )


def save_deadline(context: Context) -> float:
    """Until when a checkpoint that is asked for now is waited for (POSIX seconds)."""
    checkpoint = context.spec.checkpoint
    grace = checkpoint.grace_period_seconds if checkpoint is not None else 0
    return context.now + grace + context.policy.move_seconds


def can_save(context: Context) -> bool:
    """Whether a last checkpoint is to be hoped for: there is a place for it, and steps to save."""
    progress = context.progress
    return (
        context.spec.checkpoint is not None
        and progress is not None
        and progress.first_step_at is not None
    )


def has_saved(context: Context, since: str) -> bool:
    """Whether the live attempt has reported a durable checkpoint since it was asked for one."""
    checkpoint, placement = context.status.checkpoint, context.placement
    return (
        checkpoint is not None
        and placement is not None
        and checkpoint.attempt == placement.attempt
        and parse_time(checkpoint.saved_at) >= parse_time(since)
    )


def _has_room(context: Context, leaving: Leaving) -> bool:
    """Whether the whole gang has a place now without these nodes, were it not where it is.

    A healthy gang is not stopped for nodes that keep failing jobs.
    """
    outcome = find_place(elsewhere(context), use_avoided=bool(leaving.unhealthy))
    return isinstance(outcome, Placed)


def elsewhere(context: Context) -> Context:
    """The same, were the gang not where it is."""
    snapshot = context.snapshot
    pods = {key: mine for key, mine in snapshot.pods.items() if key != context.job.key}
    return replace(context, snapshot=replace(snapshot, pods=pods))


def _leave(context: Context, leaving: Leaving, requeue: Requeue | None) -> Verdict:
    """The commit that ends the attempt. Not counted, if its pods were never created."""
    move = context.status.move
    begun = bool(context.live_pods)
    saved = move is not None and has_saved(context, move.since)
    how = "with a new checkpoint" if saved else "without a new checkpoint"
    message = f"{leaving.told}: the gang has left{f' {how}' if move is not None else ''}"
    updates = {
        **ended(context, Outcome.MIGRATED, message, Cause.MIGRATION if begun else None),
        "excluded_nodes": restart.excluded(context, {**leaving.cordoned, **leaving.unhealthy}),
        "restart_at": None,
        "move": None,
        "move_not_before": None,
    }
    if requeue is not None:
        updates["requeue"] = requeue
        updates["placement_failures"] = context.status.placement_failures + 1
    key = f"a{context.status.attempt}"
    return Verdict(
        Phase.RESTARTING if requeue is None else Phase.STOPPING,
        Outcome.MIGRATED.value if requeue is None else requeue.reason,
        message,
        updates=updates,
        events=(JobEvent("Normal", c.EventReason.MIGRATED, message, key=key),),
        conditions=(_over(message),),
        commit=True,
    )


def _give_back(context: Context, leaving: Leaving) -> Requeue:
    """There is no room, and an unhealthy node is no place to wait at."""
    tries, policy = context.status.placement_failures + 1, context.policy
    wait = restart.exponential(policy.requeue_base_seconds, policy.requeue_max_seconds, tries)
    return Requeue(
        reason=c.Reason.NODE_UNHEALTHY,
        message=f"{leaving.told}, and there is no room for the whole gang elsewhere",
        since=format_micro_time(context.now),
        not_before=format_micro_time(context.now + wait),
    )


def _called_off(context: Context, move: Move, why: str) -> Verdict:
    """The commit that forgets the move; the gang has not been touched."""
    until = format_micro_time(context.now + context.policy.move_pause_seconds)
    stays = f"the gang stays where it is: {why}"
    return unchanged(
        context,
        {"move": None, "move_not_before": until},
        (JobEvent("Normal", c.EventReason.MIGRATION_CANCELLED, stays, key=move.since),),
        (ConditionChange(c.ConditionType.MIGRATING, False, c.Reason.NOTHING_TO_LEAVE, why),),
    )


def _stays(context: Context, leaving: Leaving) -> Outlook:
    # The message names the nodes, and not who has how much room: it must not change all the time.
    message = (
        f"{leaving.told}, but there is no room for the whole gang elsewhere: it stays until there "
        "is; evict one of its pods to stop it all the same"
    )
    return Outlook(
        condition=ConditionChange(
            c.ConditionType.MIGRATING, False, c.Reason.WAITING_FOR_ROOM, message
        ),
        look_again=context.policy.recheck_seconds,
    )


def _moving(move: Move) -> ConditionChange:
    return ConditionChange(c.ConditionType.MIGRATING, True, move.reason, move.message)


def _over(message: str) -> ConditionChange:
    return ConditionChange(c.ConditionType.MIGRATING, False, c.Reason.MIGRATED, message)


def _nothing(context: Context) -> ConditionChange | None:
    """Take back what was said about leaving nodes, if that was said."""
    if not waits_for_room(context.status):
        return None
    return ConditionChange(
        c.ConditionType.MIGRATING, False, c.Reason.NOTHING_TO_LEAVE, "no node has to be left"
    )
