"""How many ranks a gang has: what its spec asks for, and how many an attempt really is of."""

from collections.abc import Mapping

from goodput_operator import constants as c
from goodput_operator.api.spec import Role, TrainingJobSpec
from goodput_operator.api.status import Placement
from goodput_operator.domain.model import JobView, WorkloadView
from goodput_operator.domain.placement import codec

Sizes = Mapping[str, int]
"""Ranks by role, in the order of the spec."""


def asked(spec: TrainingJobSpec) -> Sizes:
    """The gang as the spec would have it."""
    return {role.name: role.replicas for role in spec.roles}


def least(role: Role) -> int:
    """With how few of its ranks a role can run."""
    return role.replicas if role.min_replicas is None else role.min_replicas


def elastic_role(spec: TrainingJobSpec) -> Role | None:
    """The role that can run with fewer ranks than asked for, if there is one."""
    return next((role for role in spec.roles if least(role) < role.replicas), None)


def granted(spec: TrainingJobSpec, workload: WorkloadView | None) -> Sizes:
    """How many ranks there is quota for: what Kueue has admitted, less what was given back."""
    back = workload.reclaimable if workload else {}
    return {
        role.name: min(_admitted(role, workload), role.replicas - back.get(role.name, 0))
        for role in spec.roles
    }


def _admitted(role: Role, workload: WorkloadView | None) -> int:
    """How many ranks of a role Kueue has admitted; all where it does not say."""
    assignments = workload.assignments if workload else ()
    return next((each.count for each in assignments if each.name == role.name), role.replicas)


def of_attempt(job: JobView, attempt: int) -> Sizes:
    """The gang of an attempt: as it was placed, whatever the spec asks for by now.

    As the spec asks where nothing is known to be placed. Raises ValueError when the job has no
    readable spec.
    """
    if job.spec is None:
        raise ValueError(f"TrainingJob {job.key} has no readable spec: {job.spec_error}")
    placement = job.status.placement
    if placement is None or placement.attempt != attempt:
        return asked(job.spec)
    return placed(job.spec, placement)


def placed(spec: TrainingJobSpec, placement: Placement) -> Sizes:
    """The gang that is placed so."""
    wanted = asked(spec)
    try:
        found = codec.sizes(placement)
    except ValueError:
        return wanted  # Somebody has edited it, and the attempt is about to be ended for that.
    return {role: found.get(role, count) for role, count in wanted.items()}


def total(spec: TrainingJobSpec, placement: Placement | None) -> int:
    """Ranks of all roles: as they are placed, or as the spec asks where nothing is."""
    return sum((asked(spec) if placement is None else placed(spec, placement)).values())


def shortage(
    spec: TrainingJobSpec, placement: Placement, workload: WorkloadView | None
) -> tuple[str, str]:
    """Reason and message of why a gang has fewer ranks than asked for, or that it has them all."""
    sizes = placed(spec, placement)
    short = next((role for role in spec.roles if sizes[role.name] < role.replicas), None)
    if short is None:
        return c.Reason.WHOLE_GANG, f"all {sum(sizes.values())} ranks that were asked for are there"
    name, has = short.name, sizes[short.name]
    told = f"runs with {has} of {short.replicas} ranks of role {name}: "
    if has >= _admitted(short, workload):
        return c.Reason.QUOTA_FOR_PART, f"{told}Kueue has no quota for more"
    return c.Reason.ROOM_FOR_PART, f"{told}there was no room on nodes for more"
