"""A job, its pods and an API server, as far as the progress endpoint sees them."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.domain.model import JobKey, JobView, PodView
from goodput_operator.domain.resources import Resources
from goodput_operator.kube.errors import AlreadyExists, Conflict, NotFound, Transient
from goodput_operator.kube.paths import SECRETS, TRAINING_JOBS, Resource
from goodput_operator.progress.auth import EXTRA_POD_NAME, EXTRA_POD_UID

KEY = JobKey("training", "digits")
UID = "0b1f3c1e-job"
NOW = 1_800_000_000.0


def job(attempt: int = 1, **changes: Any) -> JobView:
    spec = TrainingJobSpec.model_validate(
        {
            "roles": [
                {"name": "chief", "replicas": 1, "template": {}},
                {"name": "worker", "replicas": 2, "template": {}},
            ]
        }
    )
    fields: dict[str, Any] = {
        "key": KEY,
        "uid": UID,
        "resource_version": "1",
        "generation": 1,
        "created_at": NOW,
        "deleting": False,
        "labels": {},
        "spec": spec,
        "status": TrainingJobStatus(attempt=attempt),
    }
    return JobView(**(fields | changes))


def pod(role: str = "chief", rank: int = 0, attempt: int = 1, **changes: Any) -> PodView:
    name = f"digits-a{attempt}-{role}-{rank}"
    fields: dict[str, Any] = {
        "name": name,
        "namespace": KEY.namespace,
        "uid": f"uid-{name}",
        "resource_version": "1",
        "job": KEY.name,
        "job_uid": UID,
        "attempt": attempt,
        "role": role,
        "rank": rank,
        "created_at": NOW,
        "deleting": False,
        "phase": "Running",
        "ready": True,
        "node": "node-1",
        "pinned_node": "node-1",
        "requests": Resources({}),
        "status_reason": "",
        "status_message": "",
        "disruption": None,
        "unschedulable_message": None,
        "waiting": None,
    }
    return PodView(**(fields | changes))


def token_for(name: str, expiry: float = NOW + 3600) -> str:
    """Of the form of a JWT; only the fake API server below takes its signature for one."""

    def part(value: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': expiry, 'pod': name})}.{part({'of': name})}"


def review_of(view: PodView, **changes: Any) -> dict[str, Any]:
    status: dict[str, Any] = {
        "authenticated": True,
        "audiences": [c.PROGRESS_AUDIENCE],
        "user": {
            "username": f"system:serviceaccount:{view.namespace}:default",
            "extra": {EXTRA_POD_NAME: [view.name], EXTRA_POD_UID: [view.uid]},
        },
    }
    return status | changes


class FakeStore:
    def __init__(self, view: JobView | None, *pods: PodView) -> None:
        self.view = view
        self.pods = {view.uid: view for view in pods}

    def pod_by_uid(self, uid: str) -> PodView | None:
        return self.pods.get(uid)

    def job(self, key: JobKey) -> JobView | None:
        return self.view if self.view is not None and key == self.view.key else None


class FakeClient:
    """Records what is written; fails while ``failing``."""

    def __init__(self) -> None:
        self.reviews: dict[str, dict[str, Any]] = {}
        self.reviewed: list[str] = []
        self.applied: list[Mapping[str, Any]] = []
        self.managers: set[str] = set()
        self.secrets: dict[tuple[str | None, str], dict[str, Any]] = {}
        self._secret_version = 0
        self.failing = False
        self.job_uid: str | None = UID
        self.version = 1
        """The TrainingJob as it is: its UID (None: it is gone) and its resourceVersion."""

    def _check(self) -> None:
        if self.failing:
            raise Transient("any request", "the API server is away")

    def admit(self, view: PodView) -> str:
        """A token of this pod."""
        token = token_for(view.name)
        self.reviews[token] = review_of(view)
        return token

    async def token_review(self, token: str, audiences: Sequence[str]) -> dict[str, Any]:
        self.reviewed.append(token)
        assert list(audiences) == [c.PROGRESS_AUDIENCE]
        self._check()
        return self.reviews.get(token, {"authenticated": False, "error": "invalid signature"})

    async def apply_status(
        self, resource: Resource, body: Mapping[str, Any], manager: str
    ) -> dict[str, Any]:
        assert resource == TRAINING_JOBS
        self._check()
        if self.job_uid is None:
            raise NotFound("apply", "there is none")
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("apply", "the object has been modified")
        self.version += 1
        self.applied.append(body)
        self.managers.add(manager)
        return dict(body)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        self._check()
        if resource == TRAINING_JOBS:
            if self.job_uid is None:
                raise NotFound("get", name)
            return {"metadata": {"uid": self.job_uid, "resourceVersion": str(self.version)}}
        if (namespace, name) not in self.secrets:
            raise NotFound("get", name)
        return self.secrets[namespace, name]

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        assert resource == SECRETS
        self._check()
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if key in self.secrets:
            raise AlreadyExists("create", key[1])
        self.secrets[key] = self._versioned(body)
        return dict(body)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert resource == SECRETS
        self._check()
        found = self.secrets[namespace, name]
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict("patch", "the object has been modified")
        data = {k: v for k, v in (found["data"] | body["data"]).items() if v is not None}
        self.secrets[namespace, name] = self._versioned({**found, "data": data})
        return self.secrets[namespace, name]

    def _versioned(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._secret_version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._secret_version)}
        return {**body, "metadata": metadata}


class Clock:
    """Stands still until moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
