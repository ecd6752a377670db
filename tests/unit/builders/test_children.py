from collections.abc import Callable
from typing import Any

from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.builders.event import build_event
from goodput_operator.builders.service import build_service
from goodput_operator.builders.status import build_status
from goodput_operator.domain.model import JobView
from goodput_operator.domain.plan import JobEvent

JobFactory = Callable[..., JobView]
UID = "0b9f6d1c-5f0e-4d3c-9f43-0d6f0a1b2c3d"
NOW = 1769846460.25


def test_the_service_publishes_ranks_before_they_are_ready(
    make_job: JobFactory, owner: dict[str, Any]
) -> None:
    assert build_service(make_job()) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "digits-ranks",
            "namespace": "team-a",
            "labels": {"goodput.dev/job": "digits", "goodput.dev/job-uid": UID},
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"goodput.dev/job-uid": UID},
            "ports": [{"name": "coordinator", "port": 29400}],
        },
    }


LOST = JobEvent("Warning", "NodeLost", "node n1 is lost", key="3")


def test_the_whole_event(make_job: JobFactory) -> None:
    event = build_event(make_job(), LOST, NOW)
    name = event["metadata"].pop("name")
    assert name.startswith("digits.")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "team-a"},
        "involvedObject": {
            "apiVersion": "goodput.dev/v1alpha1",
            "kind": "TrainingJob",
            "namespace": "team-a",
            "name": "digits",
            "uid": UID,
            "resourceVersion": "41",
        },
        "type": "Warning",
        "reason": "NodeLost",
        "action": "NodeLost",
        "message": "node n1 is lost",
        "source": {"component": "goodput-operator"},
        "reportingComponent": "goodput.dev/goodput-operator",
        "reportingInstance": "goodput-operator",
        "eventTime": "2026-01-31T08:01:00.250000Z",
        "firstTimestamp": "2026-01-31T08:01:00Z",
        "lastTimestamp": "2026-01-31T08:01:00Z",
        "count": 1,
    }


def test_one_occurrence_has_one_name_whatever_its_message(make_job: JobFactory) -> None:
    def name(event: JobEvent, job: JobView) -> str:
        built: str = build_event(job, event, NOW)["metadata"]["name"]
        return built

    job = make_job()
    again = JobEvent("Warning", "NodeLost", "node n1 is lost, and n2", key="3")
    assert name(LOST, job) == name(again, job)
    others = [
        JobEvent("Warning", "NodeLost", "m", key="4"),
        JobEvent("Normal", "Resumed", "m", "3"),
    ]
    assert len({name(event, job) for event in [LOST, *others]}) == 3


def test_events_of_one_second_are_told_in_their_order(make_job: JobFactory) -> None:
    """``kubectl describe`` sorts them by the second, and leaves the rest as listed: by name."""
    story = [
        ("Queued", "tj-digits-1"), ("GangPlaced", "a1"), ("Admitted", "2026-01-31T08:01:00Z"),
        ("GangStarted", "a1"), ("Resumed", "a1"), ("NodeLost", "a1"),
        ("Restarting", "a2"), ("GangStarted", "a2"), ("Resumed", "a2"), ("RankCrashed", "a2"),
        ("QuotaReleased", "a9-1"), ("Restarting", "a10"), ("GangStarted", "a10"), ("Completed", ""),
    ]  # fmt: skip
    job = make_job()
    names = [
        build_event(job, JobEvent("Normal", reason, "m", key), NOW)["metadata"]["name"]
        for reason, key in story
    ]
    assert names == sorted(names)


def test_a_long_message_is_cut_to_what_the_api_server_accepts(make_job: JobFactory) -> None:
    event = build_event(make_job(), JobEvent("Normal", "Queued", "ü" * 1000), NOW)
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("ü ...")


NO_RESTARTS = {
    "crash": 0,
    "infrastructure": 0,
    "preemption": 0,
    "hang": 0,
    "powerShed": 0,
    "migration": 0,
}


def test_the_status_leaves_out_what_the_workers_report(make_job: JobFactory) -> None:
    status = TrainingJobStatus.model_validate(
        {
            "phase": "Running",
            "attempt": 2,
            "readyReplicas": 4,
            "progress": {"attempt": 2, "step": 7, "reportedAt": "2026-01-31T08:00:00Z"},
            "checkpoint": {"attempt": 2, "step": 5, "savedAt": "2026-01-31T08:00:00Z"},
        }
    )
    body = build_status(make_job(), status, guarded=False)
    assert body == {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": "team-a"},
        "status": {
            "phase": "Running",
            "attempt": 2,
            "readyReplicas": 4,
            "conditions": [],
            "attempts": [],
            "excludedNodes": [],
            "replacements": [],
            "restarts": NO_RESTARTS,
            "charged": NO_RESTARTS,
            "placementFailures": 0,
            "activeSeconds": 0.0,
            "nodeSeconds": 0.0,
        },
    }


def test_a_guarded_status_names_the_version_it_was_decided_on(make_job: JobFactory) -> None:
    body = build_status(make_job(), TrainingJobStatus(), guarded=True)
    assert body["metadata"]["resourceVersion"] == "41"
