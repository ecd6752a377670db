from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.status import Phase
from goodput_operator.domain.model import JobKey
from goodput_operator.observe.job import parse_job

RAW: dict[str, Any] = {
    "metadata": {
        "namespace": "team-a",
        "name": "digits",
        "uid": "0b9f6d1c-5f0e-4d3c-9f43-0d6f0a1b2c3d",
        "resourceVersion": "41",
        "generation": 3,
        "creationTimestamp": "2026-01-31T08:00:00Z",
        "labels": {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "high"},
    },
    "spec": {
        "framework": "PyTorch",
        "roles": [
            {
                "name": "worker",
                "replicas": 4,
                "template": {"spec": {"containers": [{"name": "c", "futureField": 1}]}},
            }
        ],
    },
    "status": {"phase": "Running", "attempt": 2},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_reads_a_job() -> None:
    job = parse_job(RAW)
    assert job.key == JobKey("team-a", "digits")
    assert (job.uid[:8], job.resource_version, job.generation) == ("0b9f6d1c", "41", 3)
    assert job.created_at == 1769846400.0
    assert not job.deleting
    assert (job.queue, job.priority_class) == ("gpus", "high")
    assert job.spec is not None
    assert job.spec_error is None
    assert job.spec.roles[0].replicas == 4
    assert job.spec.roles[0].template["spec"]["containers"][0]["futureField"] == 1
    assert (job.status.phase, job.status.attempt) == (Phase.RUNNING, 2)


def role(**fields: Any) -> dict[str, Any]:
    return {"roles": [{"name": "w", "template": {}, **fields}]}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({}, "spec.roles: Field required"),
        (None, "spec: Input should be"),
        ("text", "spec: Input should be"),
        ({"roles": []}, "spec.roles: Tuple should have at least 1 item"),
        (role(replicas=0), "spec.roles[0].replicas: Input should be greater than or equal to 1"),
        (role(replicas="many"), "(got 'many')"),
        (role(template=None), "spec.roles[0].template: Input should be a valid dictionary"),
        ({**role(), "framework": "Caffe"}, "spec.framework: Input should be 'PyTorch', 'JAX'"),
        ({**role(), "checkpoint": {}}, "spec.checkpoint.uri: Field required"),
        (
            {**role(), "faultTolerance": {"crashBackoff": {"baseSeconds": 0}}},
            "spec.faultTolerance.crashBackoff.baseSeconds: ",
        ),
        ({"roles": [{}, {}, {}]}, "spec.roles[1].name: Field required; and "),
    ],
)
def test_an_unreadable_spec_names_the_field(spec: Any, error: str) -> None:
    job = parse_job({**RAW, "spec": spec})
    assert job.spec is None
    assert job.spec_error is not None
    assert error in job.spec_error
    assert job.key.name == "digits"


def test_a_job_without_spec_says_so() -> None:
    raw = {key: value for key, value in RAW.items() if key != "spec"}
    assert parse_job(raw).spec_error == "spec: Field required"


def test_unknown_fields_are_passed_over() -> None:
    job = parse_job({**RAW, "spec": {**RAW["spec"], "power": {"cap": 300}}, "status": {"x": 1}})
    assert job.spec is not None
    assert job.status.attempt == 0


def test_a_field_of_the_status_that_cannot_be_read_does_not_take_the_others_with_it() -> None:
    status = {"phase": "Pondering", "attempt": 7, "restarts": {"crash": "x"}, "ready": "3/8"}
    job = parse_job({**RAW, "status": status})
    assert (job.status.phase, job.status.attempt, job.status.ready) == (None, 7, "3/8")
    assert job.status.restarts.crash == 0


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"labels": [1]}}])
def test_missing_parts_read_as_empty(raw: dict[str, Any]) -> None:
    job = parse_job(raw)
    assert job.key == JobKey("", "")
    assert (job.uid, job.generation, job.created_at, job.queue) == ("", 0, 0.0, None)


@given(JSON, JSON, JSON)
def test_never_raises(metadata: Any, spec: Any, status: Any) -> None:
    parse_job({"metadata": metadata, "spec": spec, "status": status})
