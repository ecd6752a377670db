"""What kopf is told: which events go into the store. Nothing is decided here."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import kopf

from goodput_operator import constants as c
from goodput_operator.kube.client import QUIET_SECONDS, WATCH_SECONDS
from goodput_operator.runtime import kinds
from goodput_operator.runtime.kinds import Kind
from goodput_operator.runtime.operator import Operator


class EndlessBackoff:
    """Seconds between tries of a request, without end: an API server that is away for a while must
    not end the process, as kopf would have it after a minute."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 1, 2, 3), itertools.repeat(5))


def settings_of(operator: Operator) -> kopf.OperatorSettings:
    """No finalizers, no peering, nothing written on objects: kopf only watches."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.worker_limit = None
    # Else kopf kills the process some time after it has ended by itself; main begins it anew.
    settings.process.ultimate_exiting_timeout = None
    timeout = operator.config.request_timeout_seconds
    settings.networking.request_timeout = timeout
    settings.networking.connect_timeout = timeout
    settings.networking.error_backoffs = EndlessBackoff()
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + QUIET_SECONDS
    settings.watching.inactivity_timeout = QUIET_SECONDS
    settings.watching.connect_timeout = timeout
    settings.watching.label_selectors["", "v1", "pods"] = c.LABEL_JOB_UID
    settings.watching.label_selectors[c.KUEUE_GROUP, c.KUEUE_VERSION, "workloads"] = c.LABEL_JOB_UID
    return settings


def register(operator: Operator) -> kopf.OperatorRegistry:
    """A registry whose handlers feed this operator's store."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        access = await operator.client.access(listed=operator.relister.doubt)
        return kopf.AiohttpSession(server=access.server, aiohttp_session=access.session)

    @kopf.on.event(c.GROUP, c.VERSION, c.PLURAL, registry=registry)
    async def job(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.JOBS, event)

    @kopf.on.event(c.KUEUE_GROUP, c.KUEUE_VERSION, "workloads", registry=registry)
    async def workload(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.WORKLOADS, event)

    @kopf.on.event("", "v1", "pods", labels={c.LABEL_JOB_UID: kopf.PRESENT}, registry=registry)
    async def pod(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.PODS, event)

    @kopf.on.event(c.KUEUE_GROUP, c.KUEUE_VERSION, "resourceflavors", registry=registry)
    async def flavor(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.FLAVORS, event)

    @kopf.on.event(c.KUEUE_GROUP, c.KUEUE_VERSION, "admissionchecks", registry=registry)
    async def check(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.CHECKS, event)

    @kopf.on.event("", "v1", "persistentvolumeclaims", registry=registry)
    async def claim(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.CLAIMS, event)

    @kopf.on.event("", "v1", "persistentvolumes", registry=registry)
    async def volume(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.VOLUMES, event)

    _register_nodes(operator, registry)
    return registry


def _register_nodes(operator: Operator, registry: kopf.OperatorRegistry) -> None:
    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def node(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.NODES, event)

    @kopf.on.event(c.GROUP, c.VERSION, c.NODE_HEALTH_PLURAL, registry=registry)
    async def node_health(event: Mapping[str, Any], **_: Any) -> None:
        _take(operator, kinds.NODE_HEALTHS, event)


def _take(operator: Operator, kind: Kind, event: Mapping[str, Any]) -> None:
    if event["type"] is not None:  # A list is no sign that a stream is alive.
        operator.alive()
    kind.take(operator.store, event["type"], event["object"])
