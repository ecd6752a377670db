"""What can be wrong between a client and the API server; read by the proxy, set by tests."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum


class Watch(StrEnum):
    """What becomes of watches."""

    FINE = "fine"
    SILENT = "silent"
    """Open, and nothing more is ever said on them, those that are open already included."""
    RESET = "reset"
    """The connection is reset as soon as anything is said."""
    CUT = "cut"
    """The line that is being sent ends in its midst, and the answer in good order."""
    GONE = "gone"
    """410 as an event within the stream."""
    FAILED = "failed"
    """500 as an event within the stream."""
    GONE_STATUS = "gone-status"
    """410 as the status of the answer."""


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults that hold at one time; none by default."""

    latency: float = 0.0
    """Seconds that each request takes longer."""
    code: int = 0
    """HTTP status that requests are answered with, and never reach the API server."""
    share: float = 1.0
    """Which part of them."""
    retry_after: str = ""
    """The header ``Retry-After`` of these answers; none when empty."""
    watch: Watch = Watch.FINE
    cut_lists: bool = False
    """Lists end halfway, in good order."""

    def to_json(self) -> str:
        """As the proxy is told."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Faults:
        """As the proxy was told."""
        values = json.loads(text)
        return cls(**{**values, "watch": Watch(values["watch"])})
