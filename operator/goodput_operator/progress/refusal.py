"""A report that is not accepted, and why."""

from enum import StrEnum


class Outcome(StrEnum):
    """What became of a report; the label of its counter."""

    ACCEPTED = "accepted"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    SUPERSEDED = "superseded"
    GONE = "gone"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"


_STATUS = {
    Outcome.INVALID: 400,
    Outcome.UNAUTHENTICATED: 401,
    Outcome.FORBIDDEN: 403,
    Outcome.GONE: 404,
    Outcome.SUPERSEDED: 409,
    Outcome.THROTTLED: 429,
    Outcome.UNAVAILABLE: 503,
}


class RefusedError(Exception):
    """Names the field, its value and the remedy, for the one who wrote the worker.

    ``status`` is the HTTP status, ``retry_after`` whole seconds for the client to wait.
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        *,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.status = status or _STATUS[outcome]
        self.retry_after = retry_after
