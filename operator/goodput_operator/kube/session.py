"""The HTTP session through which kopf watches: our own way to the API server, and an eye on it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp

PAUSE_SECONDS = 2.0
"""Between two openings of the same watch: kopf makes none when a stream breaks off at once."""


@dataclass(frozen=True, slots=True)
class Access:
    """A way to the API server for others than this package's client."""

    server: str
    session: aiohttp.ClientSession
    """With credentials; to be closed by whoever uses it."""


def observed(
    listed: Callable[[str], None], pause_seconds: float = PAUSE_SECONDS
) -> aiohttp.TraceConfig:
    """Calls ``listed`` with the plural of each list that is answered, and paces watches."""
    openings: dict[str, float] = {}

    async def before(
        _: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestStartParams
    ) -> None:
        if "watch" not in params.url.query:
            return
        now, path = time.monotonic(), params.url.path
        opening = max(now, openings.get(path, 0.0) + pause_seconds)
        openings[path] = opening
        await asyncio.sleep(opening - now)

    async def after(
        _: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        if "watch" not in params.url.query and params.response.status == 200:
            listed(params.url.name)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(before)
    trace.on_request_end.append(after)
    return trace
