"""Gangs that hang: all ranks run, and none makes a step.

The time that counts begins with what came last: the newest step; that all ranks ran, or the last of
them were replaced; that the endpoint listened; that a node of the gang came back. So a restart of
the operator, or a time in which reports could not reach it, never looks like a hang. Nor does a
slow first step, which has a limit of its own.

What is new is a step beyond all others of the attempt: of ranks that train in step all stop when
one does, and a gang of which one rank goes on does not hang.
"""

from dataclasses import dataclass, replace
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, Restarts
from goodput_operator.api.times import format_time, parse_time
from goodput_operator.domain import conditions
from goodput_operator.domain.context import A_MOMENT, Context
from goodput_operator.domain.failures import Failure, name_list, rank_name
from goodput_operator.domain.heard import GangReports, RankKey, RankReports
from goodput_operator.domain.verdict import ConditionChange, Verdict

REPORT_SECONDS = 30.0
"""Ranks report at least so often while they make steps (docs/progress.md)."""
MAX_TOLD = 3
"""Ranks that are named as furthest behind, and as silent."""


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A gang that is waited for to make a step."""

    since: float
    limit: int
    field: str
    """The field of spec.faultTolerance that sets the limit."""
    stepped: bool
    """It has made steps since all its ranks ran."""

    @property
    def until(self) -> float:
        return self.since + self.limit


def find_hang(context: Context) -> Failure | None:
    """The hang that ends the live attempt; None while it makes steps, or may yet."""
    quiet = _quiet(context)
    if quiet is None or context.now < quiet.until:
        return None
    message = f"no {'new' if quiet.stepped else 'first'} step for {quiet.limit} s, the "
    message += f"spec.faultTolerance.{quiet.field}, while all ranks ran: {_evidence(context)}"
    return Failure(
        Cause.HANG,
        c.EventReason.RANKS_HUNG,
        message,
        suspects=_suspects(context, quiet),
        happened_at=quiet.since,
    )


def told(verdict: Verdict) -> Verdict:
    """The verdict that ends a hung attempt, with the condition that says so."""
    change = ConditionChange(c.ConditionType.STALLED, True, c.Reason.NO_PROGRESS, verdict.message)
    return replace(verdict, conditions=(*verdict.conditions, change))


def progressing(context: Context) -> tuple[ConditionChange, ...]:
    """That a job which had stalled makes steps again."""
    if not conditions.is_true(context.status.conditions, c.ConditionType.STALLED):
        return ()
    quiet = _quiet(context)
    message = f"attempt {context.status.attempt} has reported step {reached(context)}"
    if context.spec.fault_tolerance.progress_timeout_seconds is None:
        message = "spec.faultTolerance.progressTimeoutSeconds was removed: nobody looks for hangs"
    elif quiet is None or not quiet.stepped:
        return ()
    return (ConditionChange(c.ConditionType.STALLED, False, c.Reason.PROGRESSING, message),)


def seconds_left(context: Context) -> float | None:
    """Seconds until the gang is taken to hang if nothing is heard before; None: it never is."""
    quiet = _quiet(context)
    return None if quiet is None else quiet.until - context.now + A_MOMENT


def reached(context: Context) -> int | None:
    """The highest step that the live attempt has reported; None if it has reported none."""
    progress, gang = context.progress, _gang(context)
    steps = [each.step for each in gang.ranks.values()] if gang else []
    if progress is not None:
        steps.append(progress.step)
    return max(steps, default=None)


def forgiven(context: Context) -> Restarts:
    """What is charged to the job, without its hangs if it has got beyond them since."""
    step, stuck_at = reached(context), context.status.hang_step
    charged = context.status.charged
    if step is None or (stuck_at is not None and step <= stuck_at):
        return charged
    return charged.model_copy(update={"hang": 0})


def accounted(context: Context) -> dict[str, Any]:
    """The field of the status that remembers how far the job had come when it hung."""
    steps = [each for each in (reached(context), context.status.hang_step) if each is not None]
    return {"hang_step": max(steps, default=None)}


def _quiet(context: Context) -> _Quiet | None:
    """Since when, and how long, the gang is waited for; None if it is not, or can't be judged."""
    tolerance, placement = context.spec.fault_tolerance, context.placement
    heard, limit = context.snapshot.heard, tolerance.progress_timeout_seconds
    if limit is None or heard is None or placement is None or placement.running_at is None:
        return None
    if context.cluster_silence is not None or not _all_run(context):
        return None
    began = parse_time(placement.replaced_at or placement.running_at)
    newest = _newest_at(context)
    stepped = newest is not None and newest >= began
    if not stepped:
        limit = tolerance.first_step_timeout_seconds
    blind_until = max((heard.since, *(_back_since(context, each) for each in placement.nodes)))
    since = max(began, blind_until, newest if newest is not None else began)
    field = "progressTimeoutSeconds" if stepped else "firstStepTimeoutSeconds"
    return _Quiet(since, limit, field, stepped)


def _all_run(context: Context) -> bool:
    """Whether every rank runs or is done. Not whether all are ready: a probe may notice first."""
    running = {
        rank
        for rank, pod in context.live_pods.items()
        if pod.phase == "Running" and pod.node is not None and not pod.deleting
    }
    return context.succeeded.union(running).issuperset(context.ranks)


def _back_since(context: Context, name: str) -> float:
    """Since when the node is ready: before, its ranks may not have been able to report."""
    node = context.snapshot.nodes.get(name)
    return node.ready_since or 0.0 if node is not None else 0.0


def _newest_at(context: Context) -> float | None:
    """When the newest step of the live attempt was reported; None before its first new one."""
    progress, gang = context.progress, _gang(context)
    times: dict[int, float] = {}
    if gang is not None:
        for each in gang.ranks.values():
            if each.step > gang.first_step:
                times[each.step] = min(each.stepped_at, times.get(each.step, each.stepped_at))
    if progress is not None and progress.first_step_at is not None:
        at = parse_time(progress.reported_at)
        times[progress.step] = min(at, times.get(progress.step, at))
    return times[max(times)] if times else None


def _gang(context: Context) -> GangReports | None:
    heard, placement = context.snapshot.heard, context.placement
    gang = heard.gangs.get(context.job.uid) if heard is not None else None
    mine = gang is not None and placement is not None and gang.attempt == placement.attempt
    return gang if mine else None


def _reports(context: Context) -> list[tuple[RankKey, RankReports]]:
    """What each rank of the gang has reported, the furthest behind first."""
    gang = _gang(context)
    known = gang.ranks if gang is not None else {}
    found = [(rank, known[rank]) for rank in context.ranks if rank in known]
    return sorted(found, key=lambda each: (each[1].step, each[1].stepped_at))


def _evidence(context: Context) -> str:
    """The last steps and their times: of the gang, and of the ranks furthest behind."""
    ranks, reports = context.ranks, _reports(context)
    at, heard = _newest_at(context), context.snapshot.heard
    step = reached(context)
    parts = ["no step was reported" if step is None else f"last step {step}"]
    if at is not None:
        parts[0] += f" at {format_time(at)}"
    if reports:
        behind = [
            f"rank {rank_name(rank)} on node {ranks[rank]}: "
            f"step {each.step} at {format_time(each.stepped_at)}"
            for rank, each in reports[:MAX_TOLD]
        ]
        parts.append("furthest behind " + ", ".join(behind))
    silent = [rank for rank in ranks if rank not in dict(reports)]
    if silent and heard is not None:
        named = [f"{rank_name(rank)} on node {ranks[rank]}" for rank in silent[:MAX_TOLD]]
        more = f" and {len(silent) - MAX_TOLD} more" if len(silent) > MAX_TOLD else ""
        since = format_time(heard.since)
        parts.append(f"nothing heard since {since} from {name_list(named)}{more}")
    return "; ".join(parts)


def _suspects(context: Context, quiet: _Quiet) -> tuple[str, ...]:
    """The node of the ranks that are behind all others, if that is one node.

    Judged only when every rank has reported, and has had the time to say which step is its last.
    """
    reports = _reports(context)
    if len(reports) < len(context.ranks) or context.now < quiet.since + 2 * REPORT_SECONDS:
        return ()
    lowest = reports[0][1].step
    behind = [rank for rank, each in reports if each.step == lowest]
    nodes = {context.ranks[rank] for rank in behind}
    return tuple(nodes) if len(nodes) == 1 and 2 * len(behind) < len(reports) else ()
