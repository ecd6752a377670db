"""``spec.faultTolerance.rules``: what to do about a failure that the user can tell by its marks."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from goodput_operator.api import rules
from goodput_operator.api.base import ApiModel

MAX_RULES = 16
MAX_MARKS = 64
"""Exit codes, signals, reasons or conditions of one rule."""


class RuleAction(StrEnum):
    """What becomes of the job."""

    FAIL = "Fail"
    RESTART = "Restart"
    RESTART_NOT_COUNTED = "RestartNotCounted"


class Signal(StrEnum):
    """Signals that end processes. A container that one has ended exits with 128 + its number."""

    SIGHUP = "SIGHUP"
    SIGINT = "SIGINT"
    SIGQUIT = "SIGQUIT"
    SIGILL = "SIGILL"
    SIGTRAP = "SIGTRAP"
    SIGABRT = "SIGABRT"
    SIGBUS = "SIGBUS"
    SIGFPE = "SIGFPE"
    SIGKILL = "SIGKILL"
    SIGUSR1 = "SIGUSR1"
    SIGSEGV = "SIGSEGV"
    SIGUSR2 = "SIGUSR2"
    SIGPIPE = "SIGPIPE"
    SIGALRM = "SIGALRM"
    SIGTERM = "SIGTERM"


class PodConditionMark(ApiModel):
    """A condition of the failed pod."""

    type: str = Field(
        min_length=1, max_length=316, description="Type of the condition, as DisruptionTarget."
    )
    status: str = Field(
        default="True", pattern="^(True|False|Unknown)$", description="Status that it must have."
    )
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Reason that it must have, as PreemptionByScheduler. Any when absent.",
    )


class FailureRule(ApiModel):
    """One rule. It matches when any of its marks is found on the rank that failed first."""

    model_config = ConfigDict(json_schema_extra=rules.FAILURE_RULE_RULES)

    action: RuleAction = Field(
        description=(
            "Fail ends the job; Restart restarts the gang and counts against the budget of the "
            "failure's cause; RestartNotCounted restarts it and counts against none."
        )
    )
    roles: tuple[Annotated[str, Field(max_length=63)], ...] = Field(
        default=(),
        max_length=16,
        description="Roles whose ranks it is about. Every role when empty.",
    )
    exit_codes: tuple[Annotated[int, Field(ge=1, le=255)], ...] = Field(
        default=(), max_length=MAX_MARKS, description="Exit codes of a container."
    )
    signals: tuple[Signal, ...] = Field(
        default=(), max_length=MAX_MARKS, description="Signals that ended a container."
    )
    reasons: tuple[Annotated[str, Field(min_length=1, max_length=128)], ...] = Field(
        default=(),
        max_length=MAX_MARKS,
        description="Reasons of a terminated container, or of the pod, as OOMKilled or Evicted.",
    )
    pod_conditions: tuple[PodConditionMark, ...] = Field(
        default=(), max_length=MAX_MARKS, description="Conditions of the pod."
    )
