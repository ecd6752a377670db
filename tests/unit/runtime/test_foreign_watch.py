"""The watch of the pods of others goes on, whatever the API server answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from goodput_operator.kube.errors import Expired, Forbidden, Transient
from goodput_operator.runtime import foreign_watch
from goodput_operator.runtime.foreign_watch import watch_foreign
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient


class WatchedClient(FakeClient):
    """Each watch does what is next in ``plays``; the last goes on for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.plays: list[Exception | list[tuple[str, Any]]] = []
        self.versions: list[str] = []

    async def watch(
        self, resource: object, version: str, selector: str | None = None
    ) -> AsyncIterator[tuple[str, Any]]:
        self.versions.append(version)
        if not self.plays:
            await asyncio.Event().wait()
        play = self.plays.pop(0)
        if isinstance(play, Exception):
            raise play
        for event in play:
            yield event


def foreign(name: str, version: int) -> Any:
    raw = raws.pod(name=name, uid=name, version=version)
    raw["metadata"]["labels"] = {}
    return raw


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> WatchedClient:
    monkeypatch.setattr(foreign_watch, "RETRY_SECONDS", 0.02)
    return WatchedClient()


@pytest.fixture
def store() -> Store:
    return Store(lambda key, delay=0.0: None)


async def run(client: WatchedClient, store: Store, alive: Callable[[], None]) -> None:
    task = asyncio.create_task(watch_foreign(client, store, "5", alive))  # type: ignore[arg-type]
    await asyncio.sleep(0.2)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "error", [Expired("watch pods", "too old"), Forbidden("watch pods", "no right")]
)
async def test_where_it_cannot_go_on_it_lists_anew(
    client: WatchedClient, store: Store, error: Exception
) -> None:
    client.plays = [[("ADDED", foreign("gone", 6))], error]
    client.lists["pods"] = ([foreign("there", 9)], "10")
    await run(client, store, lambda: None)
    assert client.versions == ["5", "6", "10"]
    assert store.snapshot().foreign_usage["node-1"].get("pods") == 1000, "only one is there"


async def test_where_it_breaks_off_it_goes_on_from_the_last_version(
    client: WatchedClient, store: Store
) -> None:
    signs: list[int] = []
    client.plays = [
        [("ADDED", foreign("a", 6)), ("BOOKMARK", {"metadata": {"resourceVersion": "8"}})],
        Transient("watch pods", "reset"),
    ]
    await run(client, store, lambda: signs.append(1))
    assert client.versions == ["5", "8", "8"]
    assert len(signs) == 2
    assert client.count("list", "pods") == 0


async def test_a_watch_that_ends_at_once_is_not_opened_at_once(
    client: WatchedClient, store: Store
) -> None:
    client.plays = [[]] * 100
    await run(client, store, lambda: None)
    assert 3 <= len(client.versions) <= 12
