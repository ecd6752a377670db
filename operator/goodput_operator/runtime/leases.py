"""Polls the Leases that kubelets renew, to know of a dead node sooner than the controller manager.

Polled, not watched: every kubelet renews its Lease every 10 s, so that a watch would bring 500
events a second from 5,000 nodes, where a list every few seconds is ten requests.

What counts is for how long a Lease has been *seen* not to change: the clock of a node is never
compared with ours, and a time in which the API server did not answer us is not held against a node
that it may not have answered either.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goodput_operator.domain.model import Lease
from goodput_operator.kube import paths
from goodput_operator.kube.client import Client
from goodput_operator.kube.errors import ApiError
from goodput_operator.observe.raw import text
from goodput_operator.runtime.nodes import LeaseSign
from goodput_operator.runtime.store import Store

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
LATE_SHARE = 0.5
"""A Lease is late after this part of the time after which it is stale."""
LONGEST_STEP = 2.0
"""Polls that come later than so many intervals make a Lease no older than this."""


@dataclass(slots=True)
class _Row:
    renewed: str
    """``spec.renewTime`` as it stands there; it is only compared with itself."""
    age: float = 0.0
    alive_at: float | None = None


class LeaseBook:
    """For how long each Lease has not been renewed. ``timeout`` and ``interval`` in seconds."""

    def __init__(self, timeout: float, interval: float) -> None:
        self._timeout, self._interval = timeout, interval
        self._rows: dict[str, _Row] = {}
        self._polled: tuple[float, float] | None = None

    def observe(
        self, leases: Iterable[Mapping[str, Any]], at: float, now: float
    ) -> dict[str, LeaseSign]:
        """What a list says of each node.

        The list was asked for at ``at`` by a clock that never jumps, and at ``now`` by the wall
        clock (POSIX seconds).
        """
        step, before = 0.0, now
        if self._polled is not None:
            step = min(max(0.0, at - self._polled[0]), LONGEST_STEP * self._interval)
            before = min(now, self._polled[1])
        rows = {}
        for raw in leases:
            name, renewed = text(raw, "metadata", "name"), text(raw, "spec", "renewTime")
            if renewed:
                rows[name] = self._row(name, renewed, step, before)
        self._rows, self._polled = rows, (at, now)
        return {name: self._sign(row, now) for name, row in rows.items()}

    def _row(self, name: str, renewed: str, step: float, before: float) -> _Row:
        known = self._rows.get(name)
        if known is None:
            return _Row(renewed)
        if known.renewed != renewed:
            # Renewed at some time since the poll before, so it was surely alive after that one.
            return _Row(renewed, alive_at=before)
        return _Row(renewed, known.age + step, known.alive_at)

    def _sign(self, row: _Row, now: float) -> LeaseSign:
        if row.age >= self._timeout:
            state = Lease.STALE
        elif row.age > self._timeout * LATE_SHARE:
            state = Lease.LATE
        else:
            state = Lease.FRESH
        return LeaseSign(state, now - row.age, row.alive_at)


async def poll_leases(
    client: Client,
    store: Store,
    timeout: float,
    interval: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Keep the store told, every ``interval`` seconds, until cancelled.

    While no job has anything to lose by a node, nothing is asked, and nothing is known.
    """
    book: LeaseBook | None = None
    while True:
        if not store.needs_leases:
            book = None
            store.put_leases({})
        else:
            book = book or LeaseBook(timeout, interval)
            at, now = clock(), time.time()
            try:
                leases, _ = await client.list_all(paths.LEASES, NAMESPACE)
            except ApiError as error:
                log.warning("%s; node Leases are looked at again in %.0f s", error, interval)
            else:
                store.put_leases(book.observe(leases, at, now))
        await asyncio.sleep(interval)
