"""The verbs of the API server, on plain dicts."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration
from yaml import YAMLError

from goodput_operator import constants as c
from goodput_operator.kube.errors import CredentialsError, Expired, Transient
from goodput_operator.kube.paths import TOKEN_REVIEWS, Resource
from goodput_operator.kube.session import Access
from goodput_operator.kube.transport import (
    APPLY_PATCH,
    MERGE_PATCH,
    Observer,
    Request,
    Transport,
    describe,
    read_object,
)

Object = dict[str, Any]

PAGE = 500
"""Objects a page of a list."""
WATCH_SECONDS = 240
"""How long the server keeps a watch open; then it is opened anew where it ended."""
QUIET_SECONDS = 65.0
"""Bookmarks come once a minute: a watch that says nothing for longer is dead. kopf's are too."""


async def connect(
    kubeconfig: str | None, observer: Observer, timeout_seconds: float, connections: int = 100
) -> "Client":
    """A client by a kubeconfig file, else by the pod's service account, else as kubectl would.

    Raises CredentialsError.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    try:
        if kubeconfig or "KUBERNETES_SERVICE_HOST" not in os.environ:
            api = await _by_kubeconfig(kubeconfig, configuration)
        else:
            kube_config.load_incluster_config(client_configuration=configuration)
            api = ApiClient(configuration)
    except (kube_config.ConfigException, OSError, YAMLError) as error:
        raise CredentialsError(
            f"no way to the API server: {kubeconfig or 'default kubeconfig'}: {error}; "
            f"set GOODPUT_KUBECONFIG to a kubeconfig file, or run as a pod"
        ) from error
    return Client(Transport(api, observer, timeout_seconds))


async def _by_kubeconfig(kubeconfig: str | None, configuration: Configuration) -> ApiClient:
    """The library writes certificates and keys of a kubeconfig to files, for OpenSSL to read.

    Once they have been read the files are of no use, and a process that is killed would leave
    them behind.
    """
    with tempfile.TemporaryDirectory(prefix="goodput-operator-") as folder:
        await kube_config.load_kube_config(
            kubeconfig, client_configuration=configuration, temp_file_path=folder
        )
        return ApiClient(configuration)


class Client:
    """All methods raise ApiError; those that change objects say which change was attempted."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def access(self, listed: Callable[[str], None]) -> Access:
        """A session of one's own to the API server, with a token that is fresh.

        ``listed`` is called with the plural of each list that is answered to it.
        """
        return await self._transport.access(listed)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object. Raises NotFound."""
        return await self._transport.send("get", "GET", resource.path(namespace, name))

    async def list_all(
        self, resource: Resource, namespace: str | None = None, selector: str | None = None
    ) -> tuple[list[Object], str]:
        """All objects, page by page, and the resourceVersion from which to watch.

        Starts anew when the server has forgotten the list meanwhile.
        """
        for _ in range(3):
            try:
                return await self._list_once(resource, namespace, selector)
            except Expired:
                continue
        return await self._list_once(resource, namespace, selector)

    async def _list_once(
        self, resource: Resource, namespace: str | None, selector: str | None
    ) -> tuple[list[Object], str]:
        items: list[Object] = []
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        path = resource.path(namespace)
        while True:
            page = await self._transport.send("list", "GET", path, query=query)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("resourceVersion"):
                raise Transient(describe("list", path), "an answer that is no list")
            if not metadata.get("continue"):
                return items, str(metadata["resourceVersion"])
            query["continue"] = metadata["continue"]

    async def watch(
        self, resource: Resource, resource_version: str, selector: str | None = None
    ) -> AsyncIterator[tuple[str, Object]]:
        """Event types and objects from a version on, ``BOOKMARK`` among them, until it ends.

        Ends quietly when the server closes it; go on from the last version seen. Raises Expired
        when that is too old, or the stream tells of an error; Transient when it breaks, falls
        silent, or says something that is no event.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        if selector:
            query["labelSelector"] = selector
        path = resource.path()
        request = Request("watch", "GET", path, query)
        response = await self._transport.open(request, WATCH_SECONDS + QUIET_SECONDS)
        try:
            if response.status != 200:
                await read_object(str(request), response)
            async for line in _lines(response, path):
                yield _event(line, path)
        finally:
            response.close()

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        """The object as created. Raises AlreadyExists."""
        namespace = body["metadata"].get("namespace")
        return await self._transport.send("create", "POST", resource.path(namespace), body=body)

    async def apply_status(
        self, resource: Resource, body: Mapping[str, Any], manager: str
    ) -> Object:
        """Forced server-side apply to the status. Raises Conflict when the version is another."""
        metadata = body["metadata"]
        return await self._transport.send(
            "apply",
            "PATCH",
            resource.path(metadata.get("namespace"), metadata["name"], "status"),
            query={"fieldManager": manager, "force": "true"},
            body=body,
            content_type=APPLY_PATCH,
        )

    async def put_status(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        """Replace the status. Raises Conflict when the resourceVersion is no longer the newest."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], "status")
        return await self._transport.send(
            "update", "PUT", path, query={"fieldManager": c.FIELD_MANAGER}, body=body
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        subresource: str | None = None,
    ) -> Object:
        """JSON merge patch."""
        return await self._transport.send(
            "patch",
            "PATCH",
            resource.path(namespace, name, subresource),
            query={"fieldManager": c.FIELD_MANAGER},
            body=body,
            content_type=MERGE_PATCH,
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> Object:
        """Delete the object if it still is this one; its dependants follow in the background.

        Answers with the object while it still stops, else with a Status. Raises NotFound, and
        Conflict when the name belongs to another object by now.
        """
        body: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._transport.send(
            "delete", "DELETE", resource.path(namespace, name), body=body
        )

    async def token_review(self, token: str, audiences: Sequence[str]) -> Object:
        """``status`` of a TokenReview."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token, "audiences": list(audiences)},
        }
        answer = await self._transport.send("create", "POST", TOKEN_REVIEWS.path(), body=body)
        status: Object = answer.get("status") or {}
        return status


def _event(line: bytes, path: str) -> tuple[str, Object]:
    """Type and object of a line. Raises Expired for an error, Transient for what is no event."""
    attempted = describe("watch", path)
    try:
        event = json.loads(line)
        kind, item = event["type"], event["object"]
        said = str(item.get("message") or item.get("reason")) if kind == "ERROR" else None
        known = said is not None or item["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Transient(attempted, f"what is no event: {line[:200]!r}") from error
    if said is not None or not known:
        raise Expired(attempted, said or "an event without a version")
    return kind, item


async def _lines(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
    """Complete lines of a streamed response. Raises Transient when it breaks or falls silent."""
    buffer = bytearray()
    chunks = response.content.iter_any()
    while True:
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(describe("watch", path), f"{type(error).__name__}: {error}") from error
        buffer += chunk
        *complete, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in complete:
            if line:
                yield bytes(line)
