"""What a report changes in what is known of a job. Pure; ``now`` is an RFC 3339 time."""

from dataclasses import dataclass

from goodput_operator.api.status import DurableCheckpoint, Progress
from goodput_operator.progress.refusal import Outcome, RefusedError
from goodput_operator.progress.report import Report

MAX_STEP_JUMP = 100_000_000
"""Steps between two reports beyond which a step is taken for a mistake."""
NEWEST_WEIGHT = 0.2
"""Weight of the newest save in the mean of what a save costs."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The two fields of the status that the workers' reports make."""

    progress: Progress | None = None
    checkpoint: DurableCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of a report."""

    reported: Reported
    urgent: bool = False
    """To be written at once: an attempt's first report or first step, or the last step."""
    durable: bool = False
    """To be written before it is answered: a checkpoint that was not known."""


def merge(known: Reported, report: Report, now: str) -> Merged:
    """Take a report over. Within an attempt nothing goes back; an equal report changes nothing.

    Raises RefusedError for a report of an attempt before the newest known, and for an absurd step.
    """
    _check(known, report)
    progress = known.progress
    if progress is None or report.attempt > progress.attempt:
        after = _begun(known, report, now)
    else:
        after = _advanced(progress, report, now)
    checkpoint = _checkpoint(known.checkpoint, report, now)
    urgent = progress is None or _is_urgent(progress, after)
    return Merged(Reported(after, checkpoint), urgent, checkpoint != known.checkpoint)


def _check(known: Reported, report: Report) -> None:
    progress, checkpoint = known.progress, known.checkpoint
    if progress is not None and report.attempt < progress.attempt:
        raise RefusedError(
            Outcome.SUPERSEDED,
            f"attempt: {report.attempt} is over, attempt {progress.attempt} reports already; "
            f"stop this rank",
        )
    last = max(progress.step if progress else 0, checkpoint.step if checkpoint else 0)
    if report.step - last > MAX_STEP_JUMP:
        raise RefusedError(
            Outcome.INVALID,
            f"step: {report.step} is more than {MAX_STEP_JUMP} steps beyond {last}, the last one "
            f"known; report optimiser steps, not samples or tokens",
        )


def _begun(known: Reported, report: Report, now: str) -> Progress:
    """The first report of an attempt."""
    start = report.resumed_from_step
    if start is None:
        start = known.checkpoint.step if known.checkpoint else 0
    return Progress(
        attempt=report.attempt,
        step=report.step,
        total_steps=report.total_steps,
        loss=report.loss,
        rank=report.rank,
        reported_at=now,
        resumed_from_step=report.resumed_from_step,
        first_step_at=now if report.step > start else None,
        corrupt_step=report.corrupt_step,
    )


def _advanced(progress: Progress, report: Report, now: str) -> Progress:
    changes: dict[str, object] = {}
    if progress.resumed_from_step is None and report.resumed_from_step is not None:
        changes["resumed_from_step"] = report.resumed_from_step
    if progress.corrupt_step is None and report.corrupt_step is not None:
        changes["corrupt_step"] = report.corrupt_step
    if progress.total_steps is None and report.total_steps is not None:
        changes["total_steps"] = report.total_steps
    if report.step > progress.step:
        start = report.resumed_from_step
        start = progress.resumed_from_step if start is None else start
        changes |= {"step": report.step, "rank": report.rank, "reported_at": now}
        changes["total_steps"] = report.total_steps or progress.total_steps
        # Of ranks that report no loss, the loss that another rank reported last stays.
        if report.loss is not None or report.rank == progress.rank:
            changes["loss"] = report.loss
        if progress.first_step_at is None and report.step > (start or 0):
            changes["first_step_at"] = now
    return progress.model_copy(update=changes) if changes else progress


def _is_urgent(before: Progress, after: Progress) -> bool:
    ended = after.total_steps is not None and after.step >= after.total_steps
    return (
        after.attempt > before.attempt
        or after.first_step_at != before.first_step_at
        or after.resumed_from_step != before.resumed_from_step
        or after.corrupt_step != before.corrupt_step
        or (ended and after.step > before.step)
    )


def _checkpoint(
    known: DurableCheckpoint | None, report: Report, now: str
) -> DurableCheckpoint | None:
    step = report.checkpoint_step
    if step is None:
        return known
    if known is None or step > known.step:
        return DurableCheckpoint(
            step=step,
            attempt=report.attempt,
            saved_at=now,
            stall_seconds=report.checkpoint_stall_seconds,
            mean_stall_seconds=_mean_stall(known, report.checkpoint_stall_seconds),
        )
    gone = step < known.step and report.attempt > known.attempt
    if gone and step == report.resumed_from_step:
        # The directory is the truth: the newer checkpoint was not in it any more. This one was
        # saved before that one, which is the best that is known of its time.
        return known.model_copy(
            update={"step": step, "attempt": report.attempt, "stall_seconds": None}
        )
    return known


def _mean_stall(known: DurableCheckpoint | None, newest: float | None) -> float | None:
    """Exponentially weighted; one slow save must not change how often all others are made."""
    before = known.mean_stall_seconds if known else None
    if newest is None or before is None:
        return before if newest is None else newest
    return round(before + NEWEST_WEIGHT * (newest - before), 3)
