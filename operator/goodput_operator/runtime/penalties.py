"""Looks after NodeHealths as their scores decay; jobs write them only when an attempt ends."""

import asyncio
import logging
import time

from goodput_operator.builders.node_health import build_status
from goodput_operator.domain.penalty import Upkeep, upkeep
from goodput_operator.domain.policy import Policy
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import ApiError, Conflict, NotFound
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity

log = logging.getLogger(__name__)


async def keep_penalties(client: Client, store: Store, policy: Policy, interval: float) -> None:
    """Delete what has decayed, and show scores that have changed much, until cancelled."""
    while True:
        await tend(client, store, policy)
        await asyncio.sleep(interval)


async def tend(client: Client, store: Store, policy: Policy) -> None:
    """One look at all of them. What fails is done the next time."""
    snapshot = store.snapshot()
    wanted = upkeep(snapshot.health.values(), snapshot.nodes, time.time(), policy)
    for each in wanted:
        try:
            await _carry_out(client, store, each)
        except (Conflict, NotFound):
            continue  # A job has ended meanwhile, or an administrator was faster.
        except ApiError as error:
            log.warning("%s; trying again in a while", error)
            return


async def _carry_out(client: Client, store: Store, wanted: Upkeep) -> None:
    """Raises ApiError."""
    health = wanted.health
    if wanted.status is None:
        answer = await client.delete(paths.NODE_HEALTHS, None, health.name, health.uid)
        if "deletionTimestamp" not in answer.get("metadata", {}):
            metadata = {"name": health.name, "uid": health.uid}
            store.drop_health(Identity.of({"metadata": metadata}))
        log.info("node %s has no penalty any more", health.name)
        return
    body = build_status(health.name, health.resource_version, wanted.status)
    store.put_health(await client.put_status(paths.NODE_HEALTHS, body))
