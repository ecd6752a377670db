"""Help for tests that wait for a real cluster."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(
    check: Callable[[], bool | tuple[bool, object]],
    timeout: float,
    what: str,
    *,
    interval: float = 0.1,
) -> None:
    """Wait until `check` says yes; it may return `(yes, observation)` to tell what it saw.

    An exception of the check counts as no, and as the observation, since things come and go.

    Raises AssertionError with what was waited for, how long, and the last observation.
    """
    began = time.monotonic()
    seen: object = None
    while True:
        try:
            result = check()
        except Exception as error:  # noqa: BLE001 - reported below if it persists
            done, seen = False, repr(error)
        else:
            done, seen = result if isinstance(result, tuple) else (result, seen)
        if done:
            return
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"{what}: not within {waited:.1f} s; last seen: {seen}")
        time.sleep(interval)
