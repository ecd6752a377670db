"""What is exported about jobs, and that it goes when they go."""

import json
import logging

import pytest
from prometheus_client import generate_latest

from goodput_operator import logs
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.metrics import Metrics
from goodput_operator.observe.job import parse_job
from tests.unit.runtime import raws

STATUS = {
    "phase": "Restarting",
    "attempt": 3,
    "replicas": 8,
    "readyReplicas": 7,
    "restarts": {"crash": 1, "infrastructure": 2, "preemption": 0},
    "progress": {"attempt": 3, "step": 120, "reportedAt": "2026-01-01T00:00:00Z"},
    "checkpoint": {"attempt": 3, "step": 100, "savedAt": "2026-01-01T00:00:00Z"},
}


def samples(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    rows = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def of_jobs(*jobs: JobView) -> dict[str, float]:
    found = samples(Metrics(lambda: jobs, lambda: 2, lambda: 1.5))
    return {
        name.replace('job_name="digits",namespace="team-a"', "…"): value
        for name, value in found.items()
    }


def test_a_job_is_described_by_its_series() -> None:
    found = of_jobs(parse_job(raws.job(status=STATUS)))
    assert found['goodput_job_phase{…,phase="Restarting"}'] == 1
    assert found["goodput_job_attempt{…}"] == 3
    assert found["goodput_job_ready_ranks{…}"] == 7
    assert found["goodput_job_ranks{…}"] == 8
    assert found["goodput_job_step{…}"] == 120
    assert found["goodput_job_checkpoint_step{…}"] == 100
    assert found["goodput_job_checkpoint_age_seconds{…}"] > 0
    restarts = {
        cause: found[f'goodput_job_restarts_total{{cause="{cause}",…}}']
        for cause in ("crash", "infrastructure", "preemption")
    }
    assert restarts == {"crash": 1, "infrastructure": 2, "preemption": 0}


def test_a_job_that_reports_nothing_has_no_made_up_numbers() -> None:
    found = of_jobs(parse_job(raws.job()))
    assert found['goodput_job_phase{…,phase="Pending"}'] == 1
    assert not [name for name in found if "step" in name or "checkpoint" in name]


def test_series_vanish_with_their_job() -> None:
    assert not [name for name in of_jobs() if name.startswith("goodput_job_")]


def test_the_operator_describes_itself() -> None:
    metrics = Metrics(lambda: (), lambda: 2, lambda: 1.5)
    metrics.reconciled(0.2, 0.1)
    metrics.failed("forbidden")
    metrics.answered("create", "pods", 201)
    metrics.answered("create", "pods", 0)
    metrics.retried("create", "pods")
    metrics.reported("accepted")
    found = samples(metrics)
    requests = "goodput_operator_api_requests_total"
    assert found["goodput_operator_queue_depth"] == 2
    assert found["goodput_operator_queue_overdue_seconds"] == 1.5
    assert found["goodput_operator_reconcile_seconds_count"] == 1
    assert found['goodput_operator_errors_total{kind="forbidden"}'] == 1
    assert found[f'{requests}{{code="201",resource="pods",verb="create"}}'] == 1
    assert found[f'{requests}{{code="none",resource="pods",verb="create"}}'] == 1
    assert found['goodput_operator_api_retries_total{resource="pods",verb="create"}'] == 1
    assert found['goodput_progress_reports_total{outcome="accepted"}'] == 1


# Logs


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("goodput", logging.INFO, __file__, 1, message, None, None)


def test_a_line_about_a_job_names_it_and_its_attempt() -> None:
    with logs.job_context(JobKey("team-a", "digits"), 3):
        line = json.loads(logs.JsonFormatter().format(record("placed")))
        text = logs.TextFormatter().format(record("placed"))
    assert (line["job"], line["attempt"], line["message"]) == ("team-a/digits", 3, "placed")
    assert "[team-a/digits a3] placed" in text
    assert "job" not in json.loads(logs.JsonFormatter().format(record("listing")))


def test_a_traceback_is_one_json_line() -> None:
    try:
        raise ValueError("bad")
    except ValueError as error:
        failed = record("bug")
        failed.exc_info = (ValueError, error, error.__traceback__)
    (line,) = logs.JsonFormatter().format(failed).splitlines()
    assert "ValueError: bad" in json.loads(line)["traceback"]


@pytest.mark.parametrize("message", ["one\ntwo", "ümläut"])
def test_any_message_is_one_json_line(message: str) -> None:
    (line,) = logs.JsonFormatter().format(record(message)).splitlines()
    assert json.loads(line)["message"] == message


def test_case_02_quota_that_is_held_for_nothing_is_exported() -> None:
    held = [(JobKey("team-a", "digits"), 42.0)]
    found = samples(Metrics(lambda: (), lambda: 0, lambda: 0.0, held_quota=lambda: held))
    series = 'goodput_job_quota_held_seconds{job_name="digits",namespace="team-a"}'
    assert found[series] == 42


def test_silence_of_the_cluster_is_exported() -> None:
    found = samples(Metrics(lambda: (), lambda: 0, lambda: 0.0, lambda: (5, True)))
    assert found["goodput_operator_silent_nodes"] == 5
    assert found["goodput_operator_cluster_silent"] == 1


def test_nodes_with_a_penalty_have_a_series_and_others_have_none() -> None:
    found = samples(Metrics(tuple, lambda: 0, lambda: 0.0, penalties=lambda: {"n1": 1.5}))
    series = {name: value for name, value in found.items() if "node_penalty" in name}
    assert series == {'goodput_node_penalty{node="n1"}': 1.5}
