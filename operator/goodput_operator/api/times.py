"""Times on the wire (RFC 3339, UTC) and in memory (POSIX seconds)."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> float:
    """POSIX seconds of an RFC 3339 time, with or without a fraction of a second.

    Raises ValueError when the text is none, or has no offset from UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset from UTC; write it as 2026-01-31T08:00:00Z")
    return (moment - _EPOCH) / timedelta(seconds=1)


def format_time(seconds: float) -> str:
    """An RFC 3339 time in whole seconds, as ``metav1.Time`` has it; fractions are cut off."""
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """An RFC 3339 time with microseconds, as ``metav1.MicroTime`` has it."""
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
