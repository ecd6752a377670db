"""Kubernetes Events on the job: its story, told once."""

import hashlib
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.times import format_micro_time, format_time
from goodput_operator.domain.model import JobView
from goodput_operator.domain.plan import JobEvent

MAX_MESSAGE_BYTES = 1024
"""The API server refuses longer ones."""


def build_event(job: JobView, event: JobEvent, now: float) -> dict[str, Any]:
    """An Event whose name is made of the job's UID, the reason and the key of the occurrence.

    So the same occurrence told twice, also by another process, is refused as already existing.
    """
    occurrence = "\0".join((job.uid, event.reason, event.key))
    digest = hashlib.sha256(occurrence.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.key.name}.{digest}", "namespace": job.key.namespace},
        "involvedObject": {
            "apiVersion": c.API_VERSION,
            "kind": c.KIND,
            "namespace": job.key.namespace,
            "name": job.key.name,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        },
        "type": event.type,
        "reason": event.reason,
        "action": event.reason,
        "message": _cut(event.message),
        "source": {"component": c.FIELD_MANAGER},
        "reportingComponent": f"{c.GROUP}/{c.FIELD_MANAGER}",
        "reportingInstance": c.FIELD_MANAGER,
        "eventTime": format_micro_time(now),
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return message
    return encoded[: MAX_MESSAGE_BYTES - 4].decode(errors="ignore") + " ..."
