"""The session that kopf watches through: our credentials, and an eye on what it lists."""

import time

import pytest
from aiohttp import ClientSession, web

from goodput_operator.kube import session as session_module
from goodput_operator.kube.client import Client
from tests.unit.kube.server import Server, status


async def test_it_has_the_credentials_and_tells_of_lists_that_succeed(
    client: Client, server: Server
) -> None:
    listed: list[str] = []
    access = await client.access(listed.append)
    assert access.server == server.url
    server.answers = [
        web.json_response({"items": []}),
        web.json_response({"items": []}),
        status(503, "ServiceUnavailable"),
    ]
    async with access.session as session:
        for query in ("", "?watch=true", ""):
            async with session.get(f"{server.url}/api/v1/namespaces/n/pods{query}") as answer:
                await answer.read()
    assert listed == ["pods"]
    assert {headers["Authorization"] for *_, headers in server.requests} == {"Bearer secret"}


async def test_a_watch_that_breaks_off_at_once_is_not_opened_again_at_once(server: Server) -> None:
    server.answers = [web.Response()]
    trace = session_module.observed(lambda plural: None, pause_seconds=0.2)
    async with ClientSession(trace_configs=[trace]) as session:

        async def seconds(path: str) -> float:
            began = time.monotonic()
            async with session.get(server.url + path) as answer:
                await answer.read()
            return time.monotonic() - began

        assert await seconds("/api/v1/pods?watch=true") < 0.1
        assert await seconds("/api/v1/nodes?watch=true") < 0.1, "another watch has its own pace"
        assert await seconds("/api/v1/pods") < 0.1, "lists are not held up"
        assert await seconds("/api/v1/pods?watch=true&resourceVersion=2") >= 0.15


def test_the_pause_leaves_enough_of_the_70_s_in_which_a_dead_watch_is_resumed() -> None:
    from goodput_operator.kube.client import QUIET_SECONDS

    assert QUIET_SECONDS + session_module.PAUSE_SECONDS < 70
    assert QUIET_SECONDS > 62, "bookmarks come every 60 to 62 s"


@pytest.mark.parametrize("times", [3])
async def test_the_pace_holds_time_after_time(server: Server, times: int) -> None:
    server.answers = [web.Response()]
    trace = session_module.observed(lambda plural: None, pause_seconds=0.1)
    began = time.monotonic()
    async with ClientSession(trace_configs=[trace]) as session:
        for _ in range(times + 1):
            async with session.get(f"{server.url}/pods?watch=true") as answer:
                await answer.read()
    assert time.monotonic() - began >= 0.1 * times
