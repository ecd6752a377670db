"""Everything is listed on a timer, and kinds that kopf has listed anew are listed after it."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from goodput_operator.domain.model import JobKey
from goodput_operator.kube.errors import ApiError, Transient
from goodput_operator.runtime import relist
from goodput_operator.runtime.kinds import JOBS, KINDS, NODES, PODS, Kind, list_all
from goodput_operator.runtime.relist import Relister
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient


class Lists:
    """Remembers what was to be listed."""

    def __init__(self) -> None:
        self.calls: list[frozenset[Kind]] = []
        self.errors: list[ApiError] = []
        self.whole = 0

    async def list(self, kinds: Collection[Kind]) -> None:
        self.calls.append(frozenset(kinds))
        if self.errors:
            raise self.errors.pop()

    def listed_all(self) -> None:
        self.whole += 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relist, "GATHER_SECONDS", 0.02)
    monkeypatch.setattr(relist, "RETRY_SECONDS", 0.02)


@pytest.fixture
def lists() -> Lists:
    return Lists()


@pytest.fixture
async def relister(lists: Lists) -> AsyncIterator[Relister]:
    made = Relister(lists.list, lists.listed_all, seconds=60)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_kinds_that_kopf_has_listed_are_listed_together_and_once(
    relister: Relister, lists: Lists
) -> None:
    for plural in ("pods", "nodes", "pods"):
        relister.doubt(plural)
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert lists.calls == [frozenset({PODS, NODES})]
    assert lists.whole == 0


async def test_what_is_listed_that_is_not_ours_is_passed_over(
    relister: Relister, lists: Lists
) -> None:
    for plural in ("customresourcedefinitions", "v1beta2", "namespaces"):
        relister.doubt(plural)
    await asyncio.sleep(0.1)
    assert lists.calls == []


async def test_a_list_that_fails_is_tried_again_with_what_came_to_it(
    relister: Relister, lists: Lists
) -> None:
    lists.errors = [Transient("list pods", "no answer")]
    relister.doubt("pods")
    await asyncio.sleep(0.03)
    relister.doubt("nodes")
    await asyncio.sleep(0.1)
    assert lists.calls == [frozenset({PODS}), frozenset({PODS, NODES})]


async def test_all_is_listed_on_a_timer_whatever_is_in_doubt(lists: Lists) -> None:
    relister = Relister(lists.list, lists.listed_all, seconds=0.1)
    task = asyncio.create_task(relister.run())
    for _ in range(5):
        relister.doubt("pods")
        await asyncio.sleep(0.03)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert frozenset(KINDS) in lists.calls
    assert lists.whole == lists.calls.count(frozenset(KINDS))


async def test_what_vanished_between_our_first_list_and_that_of_kopf_is_noticed() -> None:
    """The node is in the first list; when kopf lists it is gone, and no event will tell of it."""
    client = FakeClient()
    woken: list[JobKey] = []
    store = Store(lambda key, delay=0.0: woken.append(key))
    placement = {"attempt": 1, "nodes": ["node-1"], "roles": [{"name": "worker", "nodes": "0"}]}
    running = raws.job(status={"phase": "Running", "attempt": 1, "placement": placement})
    client.lists["trainingjobs"] = ([running], "40")
    client.lists["nodes"] = ([raws.node()], "40")
    await list_all(client, store)  # type: ignore[arg-type]
    assert "node-1" in store.snapshot().nodes
    woken.clear()

    async def list_kinds(kinds: Collection[Kind]) -> None:
        await list_all(client, store, kinds=kinds)  # type: ignore[arg-type]

    relister = Relister(list_kinds, lambda: None, seconds=60)
    task = asyncio.create_task(relister.run())
    client.lists["nodes"] = ([], "50")
    client.calls.clear()
    relister.doubt("nodes")
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "node-1" not in store.snapshot().nodes
    assert woken == [JobKey(raws.NAMESPACE, "digits")]
    assert [plural for _, plural, _ in client.calls] == ["nodes"]


async def test_kinds_are_listed_in_their_order_whichever_came_first() -> None:
    client = FakeClient()
    store = Store(lambda key, delay=0.0: None)
    await list_all(client, store, kinds={PODS, NODES, JOBS})  # type: ignore[arg-type]
    assert [plural for _, plural, _ in client.calls] == ["nodes", "trainingjobs", "pods"]
