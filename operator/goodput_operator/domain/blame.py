"""Which node an attempt's end is put down to, and when that is sure enough to be remembered.

A node that was lost, that had a bad condition or that refused a pod speaks for itself. A crash or a
hang may as well be the user's: it is held against the node of the rank that failed first only when
a later attempt has got further without that node. Until then the node is a *suspect* of this job
alone, which uses it last: so the next attempt is the experiment that tells. (ADR 0011)
"""

from dataclasses import replace

from goodput_operator import constants as c
from goodput_operator.api.node_health import MAX_MESSAGE, FailureKind, NodeFailure
from goodput_operator.api.status import AttemptRecord, Blame, Cause, Outcome, TrainingJobStatus
from goodput_operator.api.times import parse_time
from goodput_operator.domain import penalty
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import PodView
from goodput_operator.domain.plan import Plan, SetNodeHealth

SAME_MOMENT_SECONDS = 1.0
"""Kubelets tell whole seconds: which of two ranks failed first within one cannot be known."""
TOGETHER = 3
"""So many nodes of one gang do not fail at once each for a reason of its own."""
LONGER_SECONDS = 60.0
"""An attempt that reports no steps has got further when it has run for so much longer."""
_REFUSALS = ("UnexpectedAdmissionError", "OutOf")
"""Pods that a kubelet refuses for want of devices or room. Other refusals are about the pod."""
_OWN_FAULT = frozenset({"OOMKilled"})
"""Reasons of a container's end that are the job's, not the node's."""


def find_blame(
    context: Context,
    cause: Cause | None,
    lost_nodes: tuple[str, ...] = (),
    suspects: tuple[str, ...] = (),
) -> Blame | None:
    """What the end of the live attempt is put down to; None if to no node that still is there.

    ``suspects`` are the nodes that a hang is put down to, if it can be told from the ranks' steps.
    """
    if cause is Cause.INFRASTRUCTURE:
        refusing = _refusing(context)
        return of_lost(context, lost_nodes) or (
            _blame(context, FailureKind.POD_REFUSED, refusing) if len(refusing) < TOGETHER else None
        )
    if cause is Cause.CRASH:
        return _blame(context, FailureKind.CRASH, _failed_first(context))
    if cause is Cause.HANG:
        return _blame(context, FailureKind.HANG, suspects)
    move = context.status.move
    if cause is Cause.MIGRATION and move is not None and move.reason == c.Reason.NODE_UNHEALTHY:
        nodes = context.snapshot.nodes
        bad = tuple(name for name in move.nodes if name in nodes and nodes[name].bad is not None)
        return _blame(context, FailureKind.CONDITION, bad)
    return None


def of_lost(context: Context, nodes: tuple[str, ...]) -> Blame | None:
    """The blame for nodes that were lost. One that was deleted is not there to be blamed.

    Of many that are lost together none is: that was their rack, their switch, or their power.
    """
    return None if len(nodes) >= TOGETHER else _blame(context, FailureKind.NODE_LOST, nodes)


def _blame(context: Context, kind: FailureKind, nodes: tuple[str, ...]) -> Blame | None:
    there = tuple(name for name in dict.fromkeys(nodes) if name in context.snapshot.nodes)
    return Blame(kind=kind, nodes=there) if there else None


def _refusing(context: Context) -> tuple[str, ...]:
    found = (
        pod.node
        for pod in context.live_pods.values()
        if pod.phase == "Failed"
        and pod.node is not None
        and not pod.exits
        and pod.status_reason.startswith(_REFUSALS)
    )
    return tuple(dict.fromkeys(found))


def _failed_first(context: Context) -> tuple[str, ...]:
    """The node of the rank that failed first; none when that cannot be told, or is no wonder."""
    failed = [
        (time, pod)
        for pod in context.live_pods.values()
        if pod.node is not None and (time := _exit_time(pod)) is not None
    ]
    if not failed:
        return ()
    began = min(time for time, _ in failed)
    first = [pod for time, pod in failed if time <= began + SAME_MOMENT_SECONDS]
    nodes = {pod.node for pod in first if pod.node is not None}
    own_fault = any(each.reason in _OWN_FAULT for pod in first for each in pod.exits)
    return tuple(nodes) if len(nodes) == 1 and not own_fault else ()


def _exit_time(pod: PodView) -> float | None:
    times = [each.finished_at for each in pod.exits if each.exit_code and each.finished_at]
    return min(times, default=None)


def suspects(context: Context) -> frozenset[str]:
    """Nodes that this job had better use last: it crashed there, and nobody knows yet why."""
    since = context.now - context.policy.node_penalty_half_life_seconds
    return frozenset(
        name
        for record in context.status.attempts
        if record.blame is not None
        and record.blame.kind in penalty.OF_JOBS
        and not record.blame.counted
        and parse_time(record.ended_at) >= since
        for name in record.blame.nodes
    )


def with_accounts(context: Context, plan: Plan) -> Plan:
    """The plan, and with it what nodes are to be blamed for by now.

    Done when there is nothing else to do, since a job must not wait for it. The records are marked
    in the status that is written afterwards: so each is counted once, and what an administrator has
    deleted stays so. Killed in between, the operator counts it again, and a NodeHealth that has it
    already stays as it is.
    """
    if plan.commit or plan.actions:
        return plan
    due = [record for record in context.status.attempts if _is_due(context, record)]
    if not due:
        return plan
    status = plan.status or context.status
    return replace(plan, actions=_accounts(context, due), status=_marked(status, due))


def _accounts(context: Context, due: list[AttemptRecord]) -> tuple[SetNodeHealth, ...]:
    """The health of each node that is blamed, if its node still is there."""
    snapshot, failures = context.snapshot, _failures(context, due)
    actions = []
    for name in sorted(failures):
        node, health = snapshot.nodes.get(name), snapshot.health.get(name)
        if node is None:
            continue
        status = penalty.add(health, node, failures[name], context.now, context.policy)
        if health is None or status.recent != health.status.recent:
            version = health.resource_version if health is not None else None
            actions.append(SetNodeHealth(name, node.uid, version, status))
    return tuple(actions)


def _failures(context: Context, due: list[AttemptRecord]) -> dict[str, list[NodeFailure]]:
    found: dict[str, list[NodeFailure]] = {}
    for record in due:
        if record.blame is None:
            continue
        failure = NodeFailure(
            job=str(context.job.key),
            job_uid=context.job.uid,
            attempt=record.attempt,
            kind=record.blame.kind,
            time=record.ended_at,
            message=record.message[:MAX_MESSAGE],
        )
        for name in record.blame.nodes:
            found.setdefault(name, []).append(failure)
    return found


def _marked(status: TrainingJobStatus, due: list[AttemptRecord]) -> TrainingJobStatus:
    counted = {record.attempt for record in due}
    return status.model_copy(
        update={
            "attempts": tuple(
                record.model_copy(
                    update={"blame": record.blame.model_copy(update={"counted": True})}
                )
                if record.attempt in counted and record.blame is not None
                else record
                for record in status.attempts
            )
        }
    )


def _is_due(context: Context, record: AttemptRecord) -> bool:
    """Whether it can be counted now: it is not yet, and it is sure."""
    blame = record.blame
    if blame is None or blame.counted:
        return False
    return blame.kind not in penalty.OF_JOBS or _got_further_without(context, record, blame)


def _got_further_without(context: Context, record: AttemptRecord, blame: Blame) -> bool:
    """Whether a later attempt has got further on other nodes: then it was not the job's fault."""
    for later in context.status.attempts:
        if later.attempt > record.attempt and not set(blame.nodes) & set(later.nodes):
            ran = _seconds(later.running_at, parse_time(later.ended_at))
            done = later.outcome is Outcome.SUCCEEDED
            if done or _is_further(record, later.last_step, ran):
                return True
    placement, progress = context.placement, context.progress
    if placement is None or set(blame.nodes) & set(placement.nodes):
        return False
    step = progress.step if progress is not None else None
    return _is_further(record, step, _seconds(placement.running_at, context.now))


def _is_further(record: AttemptRecord, step: int | None, ran: float) -> bool:
    if record.last_step is not None:
        return step is not None and step > record.last_step
    before = _seconds(record.running_at, parse_time(record.ended_at))
    return ran > before + LONGER_SECONDS


def _seconds(since: str | None, until: float) -> float:
    return max(0.0, until - parse_time(since)) if since is not None else 0.0
