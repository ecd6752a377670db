"""What is refused as a report, and what the refusal says."""

import json
from typing import Any

import pytest

from goodput_operator.progress.refusal import RefusedError
from goodput_operator.progress.report import MAX_STEP, parse_report

REPORT = {"attempt": 2, "role": "worker", "rank": 0, "step": 120}


def test_full_report_is_read() -> None:
    report = parse_report(
        json.dumps(
            REPORT
            | {
                "totalSteps": 400,
                "loss": 0.31,
                "resumedFromStep": 100,
                "checkpointStep": 100,
                "checkpointStallSeconds": 0.12,
                "corruptStep": 200,
            }
        ).encode()
    )
    assert (report.attempt, report.total_steps, report.checkpoint_step) == (2, 400, 100)
    assert report.corrupt_step == 200, "beyond the step that was resumed from instead"
    assert report.loss == 0.31


@pytest.mark.parametrize(
    "extra", [{}, {"loss": None}, {"tokensPerStep": 4096}, {"step": 0}, {"loss": 3}]
)
def test_small_and_newer_reports_are_read(extra: dict[str, Any]) -> None:
    assert parse_report(json.dumps(REPORT | extra).encode()).rank == 0


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"step": -1}, ["step", "-1", "greater than or equal to 0"]),
        ({"step": MAX_STEP + 1}, ["step", str(MAX_STEP + 1)]),
        ({"step": "120"}, ["step", "'120'", "integer"]),
        ({"step": True}, ["step", "True"]),
        ({"step": 1.5}, ["step", "1.5"]),
        ({"step": None}, ["step", "None"]),
        ({"totalSteps": 100}, ["step: 120", "totalSteps 100", "whole run"]),
        ({"totalSteps": 0}, ["totalSteps", "0"]),
        ({"checkpointStep": 121}, ["checkpointStep: 121", "beyond step 120"]),
        ({"resumedFromStep": 130}, ["resumedFromStep: 130", "beyond step 120"]),
        ({"checkpointStallSeconds": -0.1}, ["checkpointStallSeconds", "-0.1"]),
        ({"rank": -1}, ["rank", "-1"]),
        ({"attempt": 0}, ["attempt", "0"]),
        ({"role": ""}, ["role"]),
    ],
)
def test_refusal_names_field_and_value(extra: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_report(json.dumps(REPORT | extra).encode())
    assert refused.value.status == 400
    for word in words:
        assert word in refused.value.message


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_loss_must_be_finite(loss: str) -> None:
    body = json.dumps(REPORT)[:-1] + f', "loss": {loss}}}'
    with pytest.raises(RefusedError, match="loss"):
        parse_report(body.encode())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 60_000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError):
        parse_report(body)


def test_missing_fields_are_all_named() -> None:
    with pytest.raises(RefusedError) as refused:
        parse_report(b"{}")
    for field in ("attempt", "role", "rank", "step"):
        assert f"{field}: missing" in refused.value.message
