from collections.abc import Callable
from typing import Any

import pytest

from goodput_operator.domain.model import JobView
from goodput_operator.observe.job import parse_job

UID = "0b9f6d1c-5f0e-4d3c-9f43-0d6f0a1b2c3d"

JobFactory = Callable[..., JobView]


def template(**spec: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    container = {"name": "train", "image": "train:1", "resources": resources}
    return {"spec": {"containers": [container], **spec}}


@pytest.fixture(scope="session")
def make_job() -> JobFactory:
    """A job of four workers and one evaluator; keywords replace fields of its spec."""

    def make(
        name: str = "digits",
        labels: dict[str, str] | None = None,
        status: dict[str, Any] | None = None,
        **spec: Any,
    ) -> JobView:
        roles = [
            {"name": "worker", "replicas": 4, "template": template()},
            {"name": "eval", "replicas": 1, "template": template()},
        ]
        queue = {"kueue.x-k8s.io/queue-name": "gpus"}
        return parse_job(
            {
                "metadata": {
                    "name": name,
                    "namespace": "team-a",
                    "uid": UID,
                    "resourceVersion": "41",
                    "generation": 1,
                    "labels": queue if labels is None else labels,
                },
                "spec": {"roles": roles, **spec},
                "status": status or {},
            }
        )

    return make


@pytest.fixture(scope="session")
def owner() -> dict[str, Any]:
    return {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "digits",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
