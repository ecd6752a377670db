"""The API server's part, at the client's port: objects in memory, and errors on demand."""

import asyncio
import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from goodput_operator.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from goodput_operator.kube.paths import TRAINING_JOBS, Resource

Raw = dict[str, Any]


class FakeClient:
    """Has the methods of ``kube.client.Client`` that the runtime uses."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Raw] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.refuse: dict[tuple[str, str], ApiError] = {}
        """What a verb on a plural raises."""
        self.lists: dict[str, tuple[list[Raw], str] | ApiError] = {}
        self.most_at_once = 0
        self._at_once = 0
        self._version = 100

    def count(self, verb: str, plural: str) -> int:
        return Counter((v, p) for v, p, _ in self.calls)[verb, plural]

    def add(self, resource: Resource, raw: Mapping[str, Any]) -> Raw:
        stored = copy.deepcopy(dict(raw))
        self._version += 1
        stored["metadata"]["resourceVersion"] = str(self._version)
        stored["metadata"].setdefault("uid", f"uid-{stored['metadata']['name']}")
        self.objects[resource.plural, stored["metadata"]["name"]] = stored
        return copy.deepcopy(stored)

    async def _called(self, verb: str, resource: Resource, name: str) -> None:
        self.calls.append((verb, resource.plural, name))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0)
        self._at_once -= 1
        error = self.refuse.get((verb, resource.plural))
        if error is not None:
            raise error

    def _found(self, resource: Resource, name: str) -> Raw:
        try:
            return self.objects[resource.plural, name]
        except KeyError:
            raise NotFound(f"{resource.plural} {name}", "not found") from None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Raw:
        await self._called("get", resource, name)
        return copy.deepcopy(self._found(resource, name))

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> Raw:
        name = body["metadata"]["name"]
        await self._called("create", resource, name)
        if (resource.plural, name) in self.objects:
            raise AlreadyExists(f"create {resource.plural} {name}", "already exists")
        return self.add(resource, body)

    async def apply_status(self, resource: Resource, body: Mapping[str, Any], manager: str) -> Raw:
        metadata = body["metadata"]
        await self._called("apply", resource, metadata["name"])
        found = self._found(resource, metadata["name"])
        expected = metadata.get("resourceVersion")
        if expected is not None and expected != found["metadata"]["resourceVersion"]:
            raise Conflict("apply", "the object has been modified")
        kept = {k: found["status"][k] for k in ("progress", "checkpoint") if k in found["status"]}
        return self.add(resource, {**found, "status": {**body["status"], **kept}})

    async def put_status(self, resource: Resource, body: Mapping[str, Any]) -> Raw:
        metadata = body["metadata"]
        await self._called("update", resource, metadata["name"])
        found = self._found(resource, metadata["name"])
        if metadata["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict("update", "the object has been modified")
        return self.add(resource, {**found, "status": body["status"]})

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        subresource: str | None = None,
    ) -> Raw:
        await self._called("patch", resource, name)
        found = self._found(resource, name)
        for part in ("spec", "status"):
            if part in body:
                found = {**found, part: {**found.get(part, {}), **body[part]}}
        return self.add(resource, found)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> Raw:
        await self._called("delete", resource, name)
        found = self._found(resource, name)
        if uid is not None and uid != found["metadata"]["uid"]:
            raise Conflict("delete", "the UID in the precondition is another")
        if grace_seconds != 0 and found.get("spec", {}).get("nodeName"):
            stopping = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
            metadata = {**found["metadata"], **stopping, "deletionGracePeriodSeconds": 30}
            return self.add(resource, {**found, "metadata": metadata})
        del self.objects[resource.plural, name]
        return found

    async def list_all(
        self, resource: Resource, namespace: str | None = None, selector: str | None = None
    ) -> tuple[list[Raw], str]:
        await self._called("list", resource, namespace or "")
        listed = self.lists.get(resource.plural, ([], "1"))
        if isinstance(listed, ApiError):
            raise listed
        items, version = listed
        if namespace is not None:
            items = [raw for raw in items if raw["metadata"]["namespace"] == namespace]
        return copy.deepcopy(items), version

    async def token_review(self, token: str, audiences: Sequence[str]) -> Raw:
        raise NotImplementedError


def stored_job(client: FakeClient, name: str = "digits") -> Raw:
    return client.objects[TRAINING_JOBS.plural, name]
