"""How many ranks a gang has: what its spec asks for, and how many an attempt really is of."""

from collections.abc import Mapping

from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.domain.model import JobView
from goodput_operator.domain.placement import codec

Sizes = Mapping[str, int]
"""Ranks by role, in the order of the spec."""


def asked(spec: TrainingJobSpec) -> Sizes:
    """The gang as the spec would have it."""
    return {role.name: role.replicas for role in spec.roles}


def of_attempt(job: JobView, attempt: int) -> Sizes:
    """The gang of an attempt: as it was placed, whatever the spec asks for by now.

    As the spec asks where nothing is known to be placed. Raises ValueError when the job has no
    readable spec.
    """
    if job.spec is None:
        raise ValueError(f"TrainingJob {job.key} has no readable spec: {job.spec_error}")
    placement, wanted = job.status.placement, asked(job.spec)
    if placement is None or placement.attempt != attempt:
        return wanted
    try:
        placed = codec.sizes(placement)
    except ValueError:
        return wanted  # Somebody has edited it, and the attempt is about to be ended for that.
    return {role: placed.get(role, count) for role, count in wanted.items()}
