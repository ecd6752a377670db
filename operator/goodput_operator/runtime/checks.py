"""Keeps the AdmissionChecks that we answer active: a ClusterQueue admits nothing otherwise."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from goodput_operator.api.times import format_time
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import ApiError
from goodput_operator.runtime.store import Store

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0


async def keep_active(client: Client, store: Store) -> None:
    """Mark our AdmissionChecks as active whenever they are not, until cancelled."""
    while True:
        wait = LOOK_SECONDS
        for raw in store.our_checks():
            if needs_activation(raw):
                try:
                    await activate(client, store, raw)
                except ApiError as error:
                    wait = RETRY_SECONDS
                    log.warning("%s; until it is marked as active, its queues admit nothing", error)
        await asyncio.sleep(wait)


def needs_activation(raw: Mapping[str, Any]) -> bool:
    """Whether a check of ours is not marked as active."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return not any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


async def activate(client: Client, store: Store, raw: Mapping[str, Any]) -> None:
    """Mark an AdmissionCheck as active. Raises ApiError."""
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
    body = {"status": {"conditions": [*others, condition]}}
    store.put_check(await client.patch(paths.ADMISSION_CHECKS, None, name, body, "status"))
    log.info("AdmissionCheck %s is active", name)
