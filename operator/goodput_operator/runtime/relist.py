"""Lists everything on a timer, in case a watch has lost something, and kinds that are in doubt.

A kind is in doubt when kopf has listed it anew, at its start or because its watch could not go on
where it ended: what was deleted since the list or the event before is told by no event.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection

from goodput_operator.kube.errors import ApiError
from goodput_operator.runtime.kinds import KINDS, Kind

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
"""kopf lists many kinds at once: they are listed again together."""
RETRY_SECONDS = 3.0


class Relister:
    """Has kinds listed again. ``seconds``: how often all of them are, whatever happens."""

    def __init__(
        self,
        list_kinds: Callable[[Collection[Kind]], Awaitable[None]],
        listed_all: Callable[[], None],
        seconds: float,
    ) -> None:
        """``list_kinds`` may raise ApiError: then it is called again a little later."""
        self._list_kinds, self._listed_all = list_kinds, listed_all
        self._seconds = seconds
        self._doubted: set[Kind] = set()
        self._doubt = asyncio.Event()

    def doubt(self, plural: str) -> None:
        """Somebody else has listed these objects; kinds that are not ours are passed over."""
        kinds = {kind for kind in KINDS if kind.resource.plural == plural}
        if kinds:
            self._doubted |= kinds
            self._doubt.set()

    async def run(self) -> None:
        """List until cancelled."""
        due = time.monotonic() + self._seconds
        while True:
            whole = not await self._in_doubt(due - time.monotonic())
            kinds = frozenset(KINDS if whole else self._doubted)
            self._doubted.clear()
            self._doubt.clear()
            try:
                await self._list_kinds(kinds)
            except ApiError as error:
                log.warning("%s; listing again in %.0f s", error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
                self._doubted |= kinds
                self._doubt.set()
                continue
            if whole:
                due = time.monotonic() + self._seconds
                self._listed_all()

    async def _in_doubt(self, seconds: float) -> bool:
        """Whether there is doubt within these seconds."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._doubt.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(GATHER_SECONDS)
        return True
