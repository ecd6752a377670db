"""TrainingJobs."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.observe import raw as r

MAX_ERRORS = 3
"""Errors of a spec that are told at once; the rest is counted."""


def parse_job(raw: Mapping[str, Any]) -> JobView:
    """View of a TrainingJob. An unreadable spec is None, and ``spec_error`` names the field."""
    spec, spec_error = _parse_spec(raw)
    return JobView(
        key=JobKey(r.text(raw, "metadata", "namespace"), r.text(raw, "metadata", "name")),
        uid=r.text(raw, "metadata", "uid"),
        resource_version=r.text(raw, "metadata", "resourceVersion"),
        generation=r.integer(raw, "metadata", "generation") or 0,
        created_at=r.time(raw, "metadata", "creationTimestamp") or 0.0,
        deleting=bool(r.text(raw, "metadata", "deletionTimestamp")),
        labels=r.strings(raw, "metadata", "labels"),
        spec=spec,
        status=_parse_status(r.mapping(raw, "status")),
        spec_error=spec_error,
    )


def _parse_spec(raw: Mapping[str, Any]) -> tuple[TrainingJobSpec | None, str | None]:
    if "spec" not in raw:
        return None, "spec: Field required"
    try:
        return TrainingJobSpec.model_validate(raw["spec"]), None
    except ValidationError as error:
        return None, _describe(error)


def _describe(error: ValidationError) -> str:
    """The first errors, each beginning with its field's path."""
    problems = error.errors(include_url=False, include_context=False)
    told = []
    for problem in problems[:MAX_ERRORS]:
        value = problem["input"]
        got = f" (got {value!r})" if isinstance(value, str | int | float | bool) else ""
        told.append(f"{_path(problem['loc'])}: {problem['msg']}{got}")
    if len(problems) > MAX_ERRORS:
        told.append(f"and {len(problems) - MAX_ERRORS} more")
    return "; ".join(told)


def _path(location: tuple[int | str, ...]) -> str:
    path = "spec"
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _parse_status(raw: Mapping[str, Any]) -> TrainingJobStatus:
    """The status without the fields that cannot be read.

    The API server checks it against the schema, so that this happens only to a status written by
    another version of the operator.
    """
    try:
        return TrainingJobStatus.model_validate(raw)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    unreadable = {problem["loc"][0] for problem in problems}
    return TrainingJobStatus.model_validate(
        {field: value for field, value in raw.items() if field not in unreadable}
    )
