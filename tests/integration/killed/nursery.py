"""A process that has imported the operator once, and forks an operator whenever one is wanted.

Arguments: the path of a socket to listen on. Each connection is one operator: its first line is
JSON (``environment``, ``orders``, ``log``), and it lives until the connection is closed. Killed
before, it is followed by another at once, as a Deployment would do it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.killed import killing_operator

LOOK_SECONDS = 0.02


@dataclass
class Operator:
    """One that runs, and whoever wants it to."""

    wanted_by: socket.socket
    wish: dict[str, Any]
    process: int

    def begin_again(self) -> None:
        """Another one, if the process has ended."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended:
            return
        with Path(self.wish["log"]).open("a") as log:
            log.write(f"nursery: ended with {os.waitstatus_to_exitcode(status)}\n")
        self.process = fork(self.wish)

    def end(self) -> None:
        """Be gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.wanted_by.close()


def fork(wish: dict[str, Any]) -> int:
    """The process number of a new operator."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.closerange(3, 4096)
        os.environ.update(wish["environment"])
        killing_operator.run(Path(wish["orders"]))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - or the child would go on as its parent
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(path: str) -> None:
    """Until killed."""
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    operators: list[Operator] = []
    while True:
        ready, _, _ = select.select(
            [listening, *(each.wanted_by for each in operators)], [], [], LOOK_SECONDS
        )
        for each in [one for one in operators if one.wanted_by in ready]:
            operators.remove(each)
            each.end()
        if listening in ready:
            wanted_by, _ = listening.accept()
            with wanted_by.makefile() as file:
                wish = json.loads(file.readline())
            operators.append(Operator(wanted_by, wish, fork(wish)))
        for each in operators:
            each.begin_again()


if __name__ == "__main__":
    serve(sys.argv[1])
