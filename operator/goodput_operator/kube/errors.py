"""What a request to the API server can come to, apart from success."""

from collections.abc import Mapping
from typing import Any

from goodput_operator import constants as c


class CredentialsError(Exception):
    """Nothing says how to reach the API server; the message names the remedy."""


class ApiError(Exception):
    """A request failed. The message says what was attempted, and what the server said."""

    kind = "other"
    reason: str = c.Reason.API_ERROR
    """Reason of the condition by which the job says that it failed."""
    remedy: str | None = None
    """What a person can do about it; None when there is nothing to do but wait."""
    transient = False
    """Nothing is wrong with what was asked for: it may succeed as it is."""
    final = False
    """It never will succeed."""

    def __init__(self, attempted: str, said: str, retry_after: float | None = None) -> None:
        super().__init__(f"{attempted}: {said}")
        self.attempted = attempted
        self.said = said
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""


class NotFound(ApiError):  # noqa: N818 - named as the API names its reasons
    """404: the object, or its kind, does not exist."""

    kind = "notFound"


class NotInstalled(NotFound):
    """404 for the kind itself."""

    remedy = "install its CustomResourceDefinition; Kueue's come with Kueue"


class AlreadyExists(ApiError):  # noqa: N818
    """409 on create: an object of that name is there."""

    kind = "alreadyExists"


class Conflict(ApiError):  # noqa: N818
    """409: the object has changed since it was read, or is another one by now."""

    kind = "conflict"


class Forbidden(ApiError):  # noqa: N818
    """401 or 403: the operator lacks the right, or a quota or policy forbids it."""

    kind = "forbidden"
    remedy = (
        "create what is missing, raise the quota, or let the operator's role or the policy allow it"
    )


class Terminating(Forbidden):
    """403 on create: the namespace is being deleted, which nothing can undo."""

    kind = "terminating"
    reason = c.Reason.NAMESPACE_TERMINATING
    remedy = "nothing more is done for the job, which goes with its namespace"
    final = True


class Invalid(ApiError):  # noqa: N818
    """400 or 422: the object is refused, by the schema or by an admission webhook."""

    kind = "invalid"
    remedy = "correct what it names in the job's template"


class Expired(ApiError):  # noqa: N818
    """410: the resourceVersion or continue token is too old; list anew."""

    kind = "expired"


class Transient(ApiError):  # noqa: N818
    """No answer, 429, or 5xx: the same request may succeed later."""

    kind = "transient"
    transient = True


class WebhookFailed(ApiError):  # noqa: N818
    """An admission webhook does not answer, or not in good order. Not that it refuses.

    Such a request takes as long as its webhook may, so it is not sent again at once.
    """

    kind = "webhook"
    transient = True
    reason = c.Reason.WEBHOOK_FAILING
    remedy = (
        "see that the controller behind this webhook runs and is reachable (Kueue, where the name "
        "ends in kb.io; its mpod.kb.io also needs the right to read TrainingJobs, which "
        "operator-rbac.yaml gives to Kueue's account), or delete the webhook's configuration if it "
        "is gone for good; it is tried again by itself"
    )


def from_response(
    attempted: str, code: int, status: Mapping[str, Any], retry_after: float | None
) -> ApiError:
    """The error for an HTTP status code and the ``Status`` object that came with it."""
    said = str(status.get("message") or status.get("reason") or f"HTTP {code}").strip()
    if code == 404 and not status.get("reason"):
        return NotInstalled(attempted, "the API server does not serve this kind")
    if code >= 500 and "failed calling webhook" in said:
        return WebhookFailed(attempted, said, retry_after)
    if code == 429 or code >= 500:
        return Transient(attempted, said, retry_after)
    if code == 409 and status.get("reason") == "AlreadyExists":
        return AlreadyExists(attempted, said)
    if code == 403 and "NamespaceTerminating" in _causes(status):
        return Terminating(attempted, said)
    kinds: dict[int, type[ApiError]] = {
        400: Invalid,
        401: Forbidden,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Expired,
        422: Invalid,
    }
    return kinds.get(code, ApiError)(attempted, said)


def _causes(status: Mapping[str, Any]) -> set[str]:
    """Reasons in the ``details`` of a ``Status``."""
    details = status.get("details") or {}
    return {str(cause.get("reason")) for cause in details.get("causes") or ()}
