"""Keeps the AdmissionChecks that we answer active: a ClusterQueue admits nothing otherwise."""

import logging
import time
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.times import format_time
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client, Object
from goodput_operator.kube.errors import ApiError

log = logging.getLogger(__name__)


def needs_activation(raw: Object) -> bool:
    """Whether it is ours and not marked as active."""
    if (raw.get("spec") or {}).get("controllerName") != c.CHECK_CONTROLLER:
        return False
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return not any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


async def activate(client: Client, raw: Object) -> None:
    """Mark an AdmissionCheck as active. What fails is tried again at its next event or list."""
    condition: dict[str, Any] = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "goodput-operator answers this check",
        "lastTransitionTime": format_time(time.time()),
        "observedGeneration": raw["metadata"].get("generation", 0),
    }
    others = [
        each
        for each in (raw.get("status") or {}).get("conditions") or ()
        if each["type"] != "Active"
    ]
    name = raw["metadata"]["name"]
    try:
        await client.patch(
            paths.ADMISSION_CHECKS,
            None,
            name,
            {"status": {"conditions": [*others, condition]}},
            "status",
        )
    except ApiError as error:
        log.warning("AdmissionCheck %s was not marked as active: %s", name, error)
    else:
        log.info("AdmissionCheck %s is active", name)
