"""An HTTP server that answers as a test says, and remembers what it was asked."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]] | web.Response


def status(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response(body, status=code, headers=names)


class Server:
    """Answers requests in the order of ``answers``, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, str, dict[str, str], Any, dict[str, str]]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.requests.append(
            (
                request.method,
                request.path,
                dict(request.query),
                json.loads(text) if text else None,
                dict(request.headers),
            )
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        return await answer(request)
