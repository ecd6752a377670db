"""What the progress endpoint needs of the rest of the operator; ``kube.Client`` is a client."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from goodput_operator.domain.model import JobKey, JobView, PodView
from goodput_operator.kube.paths import Resource


class ProgressClient(Protocol):
    """Calls to the API server; all raise ``kube.errors.ApiError``."""

    async def token_review(self, token: str, audiences: Sequence[str]) -> dict[str, Any]:
        """``status`` of a TokenReview."""

    async def apply_status(
        self, resource: Resource, body: Mapping[str, Any], manager: str
    ) -> dict[str, Any]:
        """The object after a forced server-side apply to its status. Raises NotFound, Conflict."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """One object. Raises NotFound."""

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object as created. Raises AlreadyExists."""

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The object after a JSON merge patch. Raises NotFound, Conflict."""


class ProgressStore(Protocol):
    """What is known of the cluster. Looked up on every report, so both are in memory."""

    def pod_by_uid(self, uid: str) -> PodView | None:
        """A TrainingJob's pod."""

    def job(self, key: JobKey) -> JobView | None:
        """A TrainingJob."""
