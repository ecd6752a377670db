"""The kinds that are listed and watched, and where each goes in the store."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goodput_operator import constants as c
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import NotFound
from goodput_operator.kube.paths import Resource
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.table import Identity, Table

log = logging.getLogger(__name__)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that decisions depend on."""

    resource: Resource
    put: Callable[[Store, Raw], None]
    drop: Callable[[Store, Identity], None]
    table: Callable[[Store], Table[Any]]
    selector: str | None = None

    def take(self, store: Store, event: str | None, raw: Raw) -> None:
        """An event of a watch: its type (None: listed at the start), and the object."""
        if event == "DELETED":
            self.drop(store, Identity.of(raw))
        else:
            self.put(store, raw)

    def take_list(self, store: Store, items: Iterable[Raw], version: str) -> None:
        """A whole list: what is in it, and what no longer is."""
        listed = set()
        for raw in items:
            listed.add(Identity.of(raw).name)
            try:
                self.put(store, raw)
            except Exception:
                # One object that trips a bug must not keep all the others from being seen.
                log.exception("bug: %s %s is passed over", self.resource.plural, _name(raw))
        at = int(version) if version.isdecimal() else 0
        for identity in self.table(store).missing(listed, at):
            self.drop(store, identity)


FLAVORS = Kind(
    paths.RESOURCE_FLAVORS, Store.put_flavor, Store.drop_flavor, lambda store: store.flavors
)
CHECKS = Kind(paths.ADMISSION_CHECKS, Store.put_check, Store.drop_check, lambda store: store.checks)
JOBS = Kind(paths.TRAINING_JOBS, Store.put_job, Store.drop_job, lambda store: store.jobs)
WORKLOADS = Kind(
    paths.WORKLOADS,
    Store.put_workload,
    Store.drop_workload,
    lambda store: store.workloads,
    selector=c.LABEL_JOB_UID,
)
PODS = Kind(
    paths.PODS, Store.put_pod, Store.drop_pod, lambda store: store.pods, selector=c.LABEL_JOB_UID
)
NODES = Kind(paths.NODES, Store.put_node, Store.drop_node, lambda store: store.nodes)
CLAIMS = Kind(paths.CLAIMS, Store.put_claim, Store.drop_claim, lambda store: store.claims)
VOLUMES = Kind(paths.VOLUMES, Store.put_volume, Store.drop_volume, lambda store: store.volumes)

NODE_HEALTHS = Kind(
    paths.NODE_HEALTHS, Store.put_health, Store.drop_health, lambda store: store.health
)

KINDS = (FLAVORS, CHECKS, NODES, NODE_HEALTHS, VOLUMES, CLAIMS, JOBS, WORKLOADS, PODS)
"""In the order in which they are listed. Jobs come before their children: a child that a job's
status speaks of is then always in the list that follows, and never taken for lost."""


async def list_all(
    client: Client,
    store: Store,
    namespaces: Sequence[str] = (),
    kinds: Collection[Kind] = KINDS,
) -> None:
    """Bring the store up to date with what is there, in some namespaces or all. Raises ApiError.

    Kueue's kinds, and that of NodeHealths, may not be installed yet: then there are none.
    """
    for kind in filter(kinds.__contains__, KINDS):
        try:
            items, version = await _list(client, kind, namespaces)
        except NotFound:
            log.warning(
                "%s.%s is not installed: %s",
                kind.resource.plural,
                kind.resource.group,
                "nodes that fail jobs are not remembered"
                if kind is NODE_HEALTHS
                else "jobs wait until it is",
            )
            continue
        kind.take_list(store, items, version)


async def _list(
    client: Client, kind: Kind, namespaces: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """Objects of a kind, and the version before which each of them that existed is among these."""
    if not namespaces or not kind.resource.namespaced:
        return await client.list_all(kind.resource, selector=kind.selector)
    items: list[dict[str, Any]] = []
    first = ""
    for namespace in namespaces:
        some, version = await client.list_all(kind.resource, namespace, kind.selector)
        items += some
        first = first or version
    return items, first


def _name(raw: Raw) -> str:
    return "/".join(filter(None, Identity.of(raw).name))
