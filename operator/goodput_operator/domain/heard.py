"""What the ranks themselves have said, as the progress endpoint holds it in memory.

None of it is in the status: it changes with every report, and after a restart of the operator the
ranks soon say it again. So a decision has to allow for how long this operator has listened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

RankKey = tuple[str, int]
"""A role, and a rank within it."""


@dataclass(frozen=True, slots=True)
class RankReports:
    """What one rank has reported from its newest pod. Times are POSIX seconds of the operator."""

    step: int
    """Its newest step."""
    stepped_at: float
    """When that step was reported first."""


@dataclass(frozen=True, slots=True)
class GangReports:
    """What the ranks of one attempt have reported."""

    attempt: int
    first_step: int
    """The first step that was heard of: where the attempt began, or where it was when this operator
    began to listen."""
    ranks: Mapping[RankKey, RankReports]


@dataclass(frozen=True, slots=True)
class Heard:
    """All that the endpoint holds."""

    since: float
    """Since when every report would have been heard, in POSIX seconds."""
    gangs: Mapping[str, GangReports] = field(default_factory=dict)
    """By the UID of the job."""
