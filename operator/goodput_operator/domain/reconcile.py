"""One decision about one job: a pure function of what is observed, and of the time.

It reads top to bottom:

1. a job that is being deleted, alone or with its namespace, or is over, starts nothing;
2. a crash may turn out to have been a lost node;
3. a live attempt (a committed placement) goes on, or ends, for a reason that is recorded first;
4. a budget may be used up;
5. without a live attempt, the job takes the next step towards one: Workload, quota, placement.

Pods of attempts that are over are stopped along the way, whatever the step.
"""

from dataclasses import replace

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain import (
    admission,
    attempt,
    blame,
    ending,
    quota,
    restart,
    withdrawal,
)
from goodput_operator.domain.conditions import set_condition
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import JobKey, JobView, Snapshot
from goodput_operator.domain.plan import NOTHING, JobEvent, Plan, ReclaimPods, SetPodsReady
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy
from goodput_operator.domain.verdict import Verdict, to_plan


def decide(snapshot: Snapshot, key: JobKey, now: float, policy: Policy = DEFAULT_POLICY) -> Plan:
    """What to do about the job ``key`` at ``now`` (POSIX seconds).

    Never raises for anything that a user or the cluster can bring about.
    """
    job = snapshot.jobs.get(key)
    if job is None or job.deleting:
        return NOTHING
    refusal = snapshot.errors.get(key)
    if refusal is not None and refusal.final:
        return _left_alone(job, refusal.reason, refusal.message, now)
    if job.spec is None:
        return _unreadable(job, now)
    context = Context(job, job.spec, snapshot, now, policy)
    if context.terminal:
        return blame.with_accounts(context, ending.settle(context))
    verdict = (
        restart.reattribute(context)
        or attempt.observe(context)
        or restart.out_of_budget(context)
        or admission.advance(context)
    )
    plan = to_plan(context, _with_error(context, verdict), ending.stop_pods(context))
    return blame.with_accounts(context, ending.after_settling(context, plan))


def _with_error(context: Context, verdict: Verdict) -> Verdict:
    """Say that the API server refuses what is wanted, while it is tried again.

    What the actions would change in the status is left out: they have not succeeded. How the ranks
    are is true all the same, though Kueue cannot be told.
    """
    error = context.snapshot.errors.get(context.job.key)
    if error is None or verdict.commit:
        return verdict
    only_tells = verdict.actions and all(
        isinstance(e, SetPodsReady | ReclaimPods) for e in verdict.actions
    )
    if only_tells or verdict.reason == c.Reason.ALL_RANKS_READY:
        return replace(verdict, message=f"{verdict.message}; {error.message}")
    held = quota.held(context)
    if held is not None:
        message = f"Workload {held.name} is evicted and no pod is left, but its quota is still held"
        told = f"{message}: {error.message}"
        return Verdict(Phase.STOPPING, c.Reason.QUOTA_HELD, told, verdict.actions)
    events = withdrawal.not_started(context, error.message)
    return Verdict(verdict.phase, error.reason, error.message, verdict.actions, events=events)


def _unreadable(job: JobView, now: float) -> Plan:
    """A spec that this version cannot read: a condition, and nothing is touched."""
    message = job.spec_error or "the spec cannot be read"
    event = JobEvent("Warning", c.EventReason.INVALID, message, key=str(job.generation))
    return replace(_left_alone(job, c.Reason.INVALID_SPEC, message, now), events=(event,))


def _left_alone(job: JobView, reason: str, message: str, now: float) -> Plan:
    """Say why nothing is done for a job; its phase stays."""
    running, generation = c.ConditionType.RUNNING, job.generation
    stored = job.status.conditions
    status = job.status.model_copy(
        update={
            "observed_generation": generation,
            "phase": job.status.phase or Phase.PENDING,
            "reason": reason,
            "conditions": set_condition(stored, running, False, reason, message, now, generation),
        }
    )
    return Plan(status=status if status != job.status else None)
