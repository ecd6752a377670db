"""A reverse proxy in front of the API server that can make anything go wrong, and count it.

A process of its own: ``python -m tests.integration.apiserver.proxy UPSTREAM CA CERT KEY ADDRESS
FILE`` listens on free ports of ADDRESS, and writes them to FILE: ``port`` speaks TLS and passes
requests on with the client's own token, ``control`` is plain HTTP (``PUT /faults``, ``GET /seen``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.integration.apiserver.faults import Faults, Watch

DROPPED = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}
"""Headers that are not passed on; answers must come as plain text to be cut."""


class Proxy:
    """Passes requests on, as the faults of the moment let it."""

    def __init__(self, upstream: str, trusted: ssl.SSLContext) -> None:
        self._upstream, self._trusted = upstream, trusted
        self.faults = Faults()
        self.seen: Counter[str] = Counter()
        """How often each fault has hit, and how many requests of each kind there were."""
        self._changed = asyncio.Event()

    def set(self, faults: Faults) -> None:
        """From now on, for open watches too."""
        self.faults = faults
        self.seen.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    async def session(self, _: web.Application) -> AsyncIterator[None]:
        """Keeps the connections to the API server, while the proxy serves."""
        connector = aiohttp.TCPConnector(ssl=self._trusted, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            self._session = session
            yield

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request, of whatever kind."""
        watching = "watch" in request.query
        self.seen[_kind_of(request)] += 1
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        faults = self.faults
        if faults.code and random.random() < faults.share:
            self.seen["code"] += 1
            return _status(faults.code, faults.retry_after)
        if watching and faults.watch is Watch.GONE_STATUS:
            self.seen[faults.watch] += 1
            return _status(410, "")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED}
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with self._session.request(
                request.method,
                self._upstream + request.path_qs,
                headers=headers,
                data=await request.read() or None,
                skip_auto_headers=("Content-Type",),
                timeout=timeout,
            ) as answer:
                if watching and answer.status == 200:
                    return await self._stream(request, answer)
                return self._whole(request, answer, await answer.read())
        except (aiohttp.ClientError, OSError):
            self.seen["unreachable"] += 1
            _reset(request)
            raise

    def _whole(
        self, request: web.Request, answer: aiohttp.ClientResponse, body: bytes
    ) -> web.Response:
        if self.faults.cut_lists and _kind_of(request) == "list":
            self.seen["cut-list"] += 1
            body = body[: len(body) // 2]
        return web.Response(status=answer.status, body=body, headers=_headers(answer))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_headers(answer))
        await response.prepare(request)
        try:
            while True:
                faults, changed = self.faults, self._changed
                if faults.watch is not Watch.FINE:
                    self.seen[faults.watch] += 1
                    return await self._break(request, response, faults.watch)
                chunk = await _next(answer, changed)
                if chunk is None:
                    continue
                if not chunk:
                    return response
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            _reset(request)
            raise

    async def _break(
        self, request: web.Request, response: web.StreamResponse, fault: Watch
    ) -> web.StreamResponse:
        if fault is Watch.SILENT:
            # For good, also when the fault is over; until the client gives up on it.
            await asyncio.Event().wait()
        elif fault is Watch.RESET:
            _reset(request)
        elif fault is Watch.CUT:
            await response.write(b'{"type":"MODIFIED","object":{"kind":"Pod","meta')
        elif fault in (Watch.GONE, Watch.FAILED):
            code = 410 if fault is Watch.GONE else 500
            event = {"type": "ERROR", "object": _failure(code)}
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def put_faults(self, request: web.Request) -> web.Response:
        """Control: other faults."""
        self.set(Faults.from_json(await request.text()))
        return web.Response()

    async def get_seen(self, _: web.Request) -> web.Response:
        """Control: what has happened since the faults were set."""
        return web.json_response(dict(self.seen))


async def _next(answer: aiohttp.ClientResponse, changed: asyncio.Event) -> bytes | None:
    """What the API server says next, empty at its end; None when the faults change before."""
    reading = asyncio.ensure_future(answer.content.readany())
    waiting = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return await reading if reading.done() else None
    finally:
        for task in (reading, waiting):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                await task


def _kind_of(request: web.Request) -> str:
    if "watch" in request.query:
        return "watch"
    if request.method != "GET":
        return "write"
    return "list" if request.path.rpartition("/")[2].endswith("s") else "get"


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {k: v for k, v in answer.headers.items() if k.lower() not in DROPPED}


def _failure(code: int) -> dict[str, object]:
    reasons = {410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    message = {"reason": reasons.get(code, ""), "message": f"the proxy says {code}"}
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **message}


def _status(code: int, retry_after: str) -> web.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    if code == 502:
        return web.Response(status=code, text="<html>bad gateway</html>", content_type="text/html")
    return web.json_response(_failure(code), status=code, headers=headers)


def _reset(request: web.Request) -> None:
    """RST, not FIN."""
    if request.transport is not None:
        sock = request.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()


async def serve(
    upstream: str, ca: str, certificate: str, key: str, address: str, file: Path
) -> None:
    """Serve until killed."""
    proxy = Proxy(upstream, ssl.create_default_context(cafile=ca))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    passing = web.Application(client_max_size=2**26)
    passing.cleanup_ctx.append(proxy.session)
    passing.router.add_route("*", "/{path:.*}", proxy.handle)
    control = web.Application()
    control.router.add_put("/faults", proxy.put_faults)
    control.router.add_get("/seen", proxy.get_seen)
    ports = {}
    for name, application, context in (("port", passing, tls), ("control", control, None)):
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(
            runner, address if context else "127.0.0.1", 0, ssl_context=context
        ).start()
        ports[name] = runner.addresses[0][1]
    whole = file.with_suffix(".partial")
    whole.write_text(json.dumps(ports))
    whole.rename(file)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:6], Path(sys.argv[6])))
