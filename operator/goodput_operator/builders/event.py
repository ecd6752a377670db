"""Kubernetes Events on the job: its story, told once."""

import hashlib
import re
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.times import format_micro_time, format_time
from goodput_operator.domain.model import JobView
from goodput_operator.domain.plan import JobEvent

MAX_MESSAGE_BYTES = 1024
"""The API server refuses longer ones."""
_ATTEMPT = re.compile(r"a([0-9]{1,9})(?:-|$)")
"""Keys of what belongs to an attempt."""
_LAST_ATTEMPT = 0xFFFF
_BEFORE = (c.EventReason.INVALID, c.EventReason.QUEUED, c.EventReason.GANG_PLACED)
_WITHIN = (
    c.EventReason.ADMITTED,
    c.EventReason.RESTARTING,
    c.EventReason.GANG_STARTED,
    c.EventReason.NOT_STARTED,
    c.EventReason.RESUMED,
)
_AFTER = (c.EventReason.COMPLETED, c.EventReason.FAILED)


def build_event(job: JobView, event: JobEvent, now: float) -> dict[str, Any]:
    """An Event whose name is made of the job's UID, the reason and the key of the occurrence.

    So the same occurrence told twice, also by another process, is refused as already existing.
    """
    occurrence = "\0".join((job.uid, event.reason, event.key))
    digest = hashlib.sha256(occurrence.encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job.key.name}.{_order(event)}{digest}",
            "namespace": job.key.namespace,
        },
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


def _order(event: JobEvent) -> str:
    """Six hexadecimal digits by which names of Events are in the order of the story.

    kubectl sorts Events by their second alone, and those of one second are left as the API server
    lists them: by name. An attempt comes after the one before it, and in it what ended it at last.
    """
    if event.reason in _BEFORE:
        return f"0000{_BEFORE.index(event.reason):02x}"
    if event.reason in _AFTER:
        return "ffffff"
    found = _ATTEMPT.match(event.key)
    attempt = min(int(found[1]), _LAST_ATTEMPT) if found else 0
    place = _WITHIN.index(event.reason) if event.reason in _WITHIN else len(_WITHIN)
    return f"{attempt:04x}{len(_BEFORE) + place:02x}"


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return message
    return encoded[: MAX_MESSAGE_BYTES - 4].decode(errors="ignore") + " ..."
