"""Where the time between a failure and the first new step went."""

from itertools import pairwise
from typing import Any

from goodput_operator.api.status import AttemptRecord, Recovery
from goodput_operator.api.times import parse_time
from goodput_operator.domain.context import Context


def refreshed(context: Context) -> dict[str, Any]:
    """The field of the status to set, once the live attempt trains after a failure.

    A job that never reports a step has recovered once all its ranks run, and has no ``restore``.
    Attempts that queued or were suspended in between are not recoveries.
    """
    placement, stored = context.placement, context.status.recovery
    record = context.status.attempts[-1] if context.status.attempts else None
    if placement is None or placement.running_at is None or record is None:
        return {}
    if record.cause is None or record.failed_at is None or record.attempt + 1 != placement.attempt:
        return {}
    if stored is not None and stored.attempt == placement.attempt:
        return {}
    first = _first_step(context)
    if first is None and context.status.progress is not None:
        return {}
    return {"recovery": _split(context, record, first)}


def _first_step(context: Context) -> float | None:
    progress = context.progress
    return parse_time(progress.first_step_at) if progress and progress.first_step_at else None


def _split(context: Context, record: AttemptRecord, first: float | None) -> Recovery:
    placement = context.placement
    if placement is None or placement.running_at is None or record.failed_at is None:
        raise ValueError("there is nothing that has recovered")
    marks = [
        parse_time(record.failed_at),
        parse_time(record.ended_at),
        # Cut short when the failure turned out to be another's.
        min(
            parse_time(record.ended_at) + record.wait_seconds,
            parse_time(placement.committed_at),
        ),
        parse_time(placement.committed_at),
        parse_time(placement.created_at or placement.running_at),
        parse_time(placement.bound_at or placement.running_at),
        parse_time(placement.running_at),
        first if first is not None else parse_time(placement.running_at),
    ]
    # Clocks of several machines are in this: a stage never takes less than no time.
    for index in range(1, len(marks)):
        marks[index] = max(marks[index], marks[index - 1])
    detect, wait, place, create, bind, start, restore = (
        round(after - before, 3) for before, after in pairwise(marks)
    )
    return Recovery(
        attempt=placement.attempt,
        cause=record.cause,
        detect=detect,
        wait=wait,
        place=place,
        create=create,
        bind=bind,
        start=start,
        restore=restore if first is not None else None,
        total=round(marks[-1] - marks[0], 3),
    )
