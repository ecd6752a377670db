"""The body with which the reconciler applies a job's status."""

from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.domain.model import JobView

REPORTED_FIELDS = frozenset({"progress", "checkpoint"})
"""Applied by the progress endpoint under its own field manager; applying them here would take them
away from it, and leaving them out of an apply that owned them would delete them."""


def build_replacement(applied: Mapping[str, Any]) -> dict[str, Any]:
    """Body of a merge patch that does the same as an apply, and also takes away what it leaves out.

    An apply leaves alone what somebody else has written into a field that it doesn't name.
    """
    status = applied["status"]
    names = (field.alias or name for name, field in TrainingJobStatus.model_fields.items())
    absent = {name: None for name in names if name not in status and name not in REPORTED_FIELDS}
    return {"metadata": applied["metadata"], "status": {**absent, **status}}


def left_over(applied: Mapping[str, Any], answer: Mapping[str, Any]) -> set[str]:
    """Fields of the status that are still there after an apply that left them out."""
    return set(answer.get("status") or ()) - set(applied["status"]) - REPORTED_FIELDS


def build_status(job: JobView, status: TrainingJobStatus, guarded: bool) -> dict[str, Any]:
    """Body of a server-side apply to the status subresource.

    ``guarded`` adds the resourceVersion: the write is refused if the job has changed since it was
    decided. Without it, it also reaches a job of the same name that was created since: the API
    server ignores a UID in writes to the status subresource.
    """
    metadata = {"name": job.key.name, "namespace": job.key.namespace}
    if guarded:
        metadata["resourceVersion"] = job.resource_version
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.KIND,
        "metadata": metadata,
        "status": status.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude=set(REPORTED_FIELDS)
        ),
    }
