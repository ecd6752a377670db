"""The operator, which dies right before one of its writes and is started anew in that moment.

Settings, all of them variables:

- ``KILLED_ARMED``: a file; writes count from when it is there.
- ``KILLED_LOG``: a file that each counted write is appended to, and ``KILLED`` where it died.
- ``KILLED_BEFORE``: ``VERB RESOURCE NUMBER``, such as ``create pods 2``; never when empty.

Death is an ``exec``: nothing is finished, drained or closed, memory is gone, and the process
that follows is a normal operator.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from goodput_operator.__main__ import main
from goodput_operator.kube.transport import Transport, plural_of

WRITES = {"create", "patch", "apply", "update", "delete"}
REVIEWS = "tokenreviews"
Send = Callable[..., Awaitable[dict[str, Any]]]


def write_of(verb: str, path: str) -> str | None:
    """``VERB RESOURCE[/SUBRESOURCE]`` of a request that changes something, else None."""
    resource = plural_of(path)
    if verb not in WRITES or resource == REVIEWS:
        return None
    return f"{verb} {resource}" + ("/status" if path.endswith("/status") else "")


def watched(send: Send) -> Send:
    """``Transport.send`` that counts writes, and dies before the one that is meant."""
    armed, log = Path(os.environ["KILLED_ARMED"]), Path(os.environ["KILLED_LOG"])
    seen: Counter[str] = Counter()

    def count(write: str) -> None:
        seen[write] += 1
        told = f"{write} {seen[write]}"
        meant = told == os.environ.get("KILLED_BEFORE")
        with log.open("a") as file:
            file.write(("KILLED\n" if meant else "") + told + "\n")
        if meant:
            die()

    async def counting(self: Transport, verb: str, method: str, path: str, **rest: Any) -> Any:
        write = write_of(verb, path)
        if write is not None and armed.exists():  # noqa: ASYNC240
            count(write)
        return await send(self, verb, method, path, **rest)

    return counting


def die() -> None:
    """Be gone, and a new operator in this place."""
    environment = {**os.environ, "KILLED_BEFORE": ""}
    os.execve(sys.executable, [sys.executable, "-m", __spec__.name], environment)


if __name__ == "__main__":
    Transport.send = watched(Transport.send)  # type: ignore[method-assign]
    main()
