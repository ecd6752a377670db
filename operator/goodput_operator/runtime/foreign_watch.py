"""Lists and watches the pods that are not ours, for what they take from their nodes.

Apart from kopf, since there may be tens of thousands of them, and only sums are kept.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from goodput_operator import constants as c
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import ApiError, Transient
from goodput_operator.runtime.store import Store

log = logging.getLogger(__name__)

SELECTOR = f"!{c.LABEL_JOB_UID}"
RETRY_SECONDS = 2.0


async def list_foreign(client: Client, store: Store, namespaces: Collection[str] = ()) -> str:
    """Start over from a list; the version from which to watch. Raises ApiError."""
    pods, version = await client.list_all(paths.PODS, selector=_selector(namespaces))
    store.replace_foreign_pods(_as_foreign(raw) for raw in pods if not _is_ours(raw, namespaces))
    return version


async def watch_foreign(
    client: Client,
    store: Store,
    version: str,
    alive: Callable[[], None],
    namespaces: Collection[str] = (),
) -> None:
    """Follow them until cancelled; ``alive`` is called at every sign of life of the stream."""
    while True:
        began = time.monotonic()
        try:
            async for event, raw in client.watch(paths.PODS, version, _selector(namespaces)):
                alive()
                version = raw["metadata"]["resourceVersion"]
                if event == "BOOKMARK" or _is_ours(raw, namespaces):
                    continue
                if event == "DELETED":
                    store.drop_foreign_pod(raw)
                else:
                    store.put_foreign_pod(_as_foreign(raw))
        except Transient as error:
            log.warning("%s; watching again", error)
        except ApiError as error:
            log.warning("%s; listing again", error)
            version = await _list_again(client, store, namespaces)
        await asyncio.sleep(max(0.0, began + RETRY_SECONDS - time.monotonic()))


async def _list_again(client: Client, store: Store, namespaces: Collection[str]) -> str:
    while True:
        try:
            return await list_foreign(client, store, namespaces)
        except ApiError as error:
            log.warning("%s; listing again", error)
            await asyncio.sleep(RETRY_SECONDS)


def _selector(namespaces: Collection[str]) -> str | None:
    """The server leaves out the pods of TrainingJobs, unless only some namespaces are ours."""
    return None if namespaces else SELECTOR


def _is_ours(raw: Mapping[str, Any], namespaces: Collection[str]) -> bool:
    """Pods of TrainingJobs elsewhere are another operator's: they take room like anybody's."""
    metadata = raw["metadata"]
    return (
        bool(namespaces)
        and metadata.get("namespace") in namespaces
        and c.LABEL_JOB_UID in (metadata.get("labels") or {})
    )


def _as_foreign(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without labels, by which another operator's pods would be taken for ours."""
    return {**raw, "metadata": {**raw["metadata"], "labels": {}}}
