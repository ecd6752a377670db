"""One decision about one job: a pure function of what is observed, and of the time.

It reads top to bottom:

1. a job that is being deleted, or is over, starts nothing;
2. a crash may turn out to have been a lost node;
3. a live attempt (a committed placement) goes on, or ends, for a reason that is recorded first;
4. a budget may be used up;
5. without a live attempt, the job takes the next step towards one: Workload, quota, placement.

Pods of attempts that are over are stopped along the way, whatever the step.
"""

from goodput_operator import constants as c
from goodput_operator.api.status import Phase
from goodput_operator.domain import admission, attempt, ending, restart
from goodput_operator.domain.conditions import set_condition
from goodput_operator.domain.context import Context
from goodput_operator.domain.model import JobKey, JobView, Snapshot
from goodput_operator.domain.plan import NOTHING, JobEvent, Plan
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy
from goodput_operator.domain.verdict import Verdict, to_plan


def decide(snapshot: Snapshot, key: JobKey, now: float, policy: Policy = DEFAULT_POLICY) -> Plan:
    """What to do about the job ``key`` at ``now`` (POSIX seconds).

    Never raises for anything that a user or the cluster can bring about.
    """
    job = snapshot.jobs.get(key)
    if job is None or job.deleting:
        return NOTHING
    if job.spec is None:
        return _unreadable(job, now)
    context = Context(job, job.spec, snapshot, now, policy)
    if context.terminal:
        return ending.settle(context)
    verdict = (
        restart.reattribute(context)
        or attempt.observe(context)
        or restart.out_of_budget(context)
        or admission.advance(context)
    )
    plan = to_plan(context, _with_error(context, verdict), ending.stop_pods(context))
    return ending.after_settling(context, plan)


def _with_error(context: Context, verdict: Verdict) -> Verdict:
    """Say that the API server refuses what is wanted, while it is tried again.

    What the actions would change in the status is left out: they have not succeeded.
    """
    error = context.snapshot.errors.get(context.job.key)
    if error is None or verdict.commit:
        return verdict
    return Verdict(verdict.phase, error.reason, error.message, verdict.actions)


def _unreadable(job: JobView, now: float) -> Plan:
    """A spec that this version cannot read: a condition, and nothing is touched."""
    message = job.spec_error or "the spec cannot be read"
    status = job.status.model_copy(
        update={
            "observed_generation": job.generation,
            "phase": job.status.phase or Phase.PENDING,
            "reason": c.Reason.INVALID_SPEC,
            "conditions": set_condition(
                job.status.conditions,
                c.ConditionType.RUNNING,
                False,
                c.Reason.INVALID_SPEC,
                message,
                now,
                job.generation,
            ),
        }
    )
    return Plan(
        status=status if status != job.status else None,
        events=(JobEvent("Warning", c.EventReason.INVALID, message, key=str(job.generation)),),
    )
