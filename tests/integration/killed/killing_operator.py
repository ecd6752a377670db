"""The operator, which dies right before one of its writes, as by SIGKILL.

``orders`` is a file; while it is not there, the operator is a normal one. Its first line names a
log that each write is appended to, its second the write to die before: ``VERB RESOURCE NUMBER``,
such as ``create pods 2``, counted from when the file was first seen; or nothing. The log ends
with ``KILLED`` where it died, and the operator that follows kills itself no more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from goodput_operator.__main__ import main
from goodput_operator.kube.transport import Transport, plural_of

KILLED = "KILLED"
WRITES = {"create", "patch", "apply", "update", "delete"}
REVIEWS = "tokenreviews"
Send = Callable[..., Awaitable[dict[str, Any]]]


def write_of(verb: str, path: str) -> str | None:
    """``VERB RESOURCE[/SUBRESOURCE]`` of a request that changes something, else None."""
    resource = plural_of(path)
    if verb not in WRITES or resource == REVIEWS:
        return None
    return f"{verb} {resource}" + ("/status" if path.endswith("/status") else "")


def watched(send: Send, orders: Path) -> Send:
    """``Transport.send`` that counts writes, and dies before the one that is meant."""
    seen: Counter[tuple[str, str]] = Counter()

    def count(log: Path, before: str, write: str) -> None:
        seen[str(log), write] += 1
        told = f"{write} {seen[str(log), write]}"
        lines = log.read_text().splitlines() if log.exists() else []
        meant = told == before and KILLED not in lines
        with log.open("a") as file:
            file.write(f"{KILLED}\n" if meant else f"{told}\n")
        if meant:
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()

    async def counting(self: Transport, verb: str, method: str, path: str, **rest: Any) -> Any:
        write = write_of(verb, path)
        if write is not None and orders.exists():  # noqa: ASYNC240
            log, before = orders.read_text().splitlines()  # noqa: ASYNC240
            count(Path(log), before, write)
        return await send(self, verb, method, path, **rest)

    return counting


def run(orders: Path) -> None:
    """Be that operator, with the settings of the environment, until it ends."""
    sys.argv = ["goodput-operator"]
    Transport.send = watched(Transport.send, orders)  # type: ignore[method-assign]
    main()
