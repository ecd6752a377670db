"""The body of a report, and what of it is believed."""

from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError, model_validator

from goodput_operator.api.base import ApiModel
from goodput_operator.progress.refusal import Outcome, RefusedError

MAX_STEP = 10**12
MAX_STALL_SECONDS = 7 * 24 * 3600.0

Step = Annotated[int, Field(ge=0, le=MAX_STEP)]


class Report(ApiModel):
    """What a rank says about itself. Steps count completed optimiser steps.

    Unknown fields are ignored: a worker may be newer than the operator.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    attempt: int = Field(ge=1)
    role: str = Field(min_length=1, max_length=63)
    rank: int = Field(ge=0, description="Rank over all roles.")
    step: Step
    total_steps: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    loss: float | None = None
    resumed_from_step: Step | None = None
    checkpoint_step: Step | None = None
    checkpoint_stall_seconds: float | None = Field(default=None, ge=0, le=MAX_STALL_SECONDS)
    corrupt_step: Step | None = Field(
        default=None,
        description="Newest step whose checkpoint was passed over as damaged at the resume.",
    )

    @model_validator(mode="after")
    def _steps_in_order(self) -> "Report":
        for name, value in (
            ("checkpointStep", self.checkpoint_step),
            ("resumedFromStep", self.resumed_from_step),
        ):
            if value is not None and value > self.step:
                raise ValueError(
                    f"{name}: {value} is beyond step {self.step}; "
                    f"step counts the steps completed, those before the resume too"
                )
        if self.total_steps is not None and self.step > self.total_steps:
            raise ValueError(
                f"step: {self.step} is beyond totalSteps {self.total_steps}; "
                f"report the whole run's steps in both"
            )
        return self


def parse_report(body: bytes) -> Report:
    """A report out of a request's body. Raises RefusedError naming each field that is wrong."""
    try:
        return Report.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(Outcome.INVALID, "; ".join(_problems(error))) from error


def _problems(error: ValidationError) -> list[str]:
    problems = []
    for detail in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        if not field:
            problems.append(message)
        elif detail["type"] == "missing":
            problems.append(f"{field}: missing; every report has attempt, role, rank and step")
        else:
            problems.append(f"{field}: {repr(detail['input'])[:80]} is refused: {message}")
    return problems
