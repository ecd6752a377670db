"""Settings by the environment, and by arguments, which win."""

from typing import Any

import pytest

from goodput_operator.worker.goodput_worker import VERIFY_SECONDS, Worker

DEFAULTS = {"keep": 2, "verify_seconds": VERIFY_SECONDS, "grace_seconds": 30.0, "job": None}


@pytest.mark.parametrize(
    ("env", "overrides", "expected"),
    [
        ({}, {}, {}),
        ({"GOODPUT_CHECKPOINT_KEEP": "5"}, {}, {"keep": 5}),
        ({"GOODPUT_CHECKPOINT_KEEP": "5"}, {"keep": 3}, {"keep": 3}),
        ({"GOODPUT_CHECKPOINT_VERIFY_SECONDS": "0"}, {}, {"verify_seconds": 0}),
        ({"GOODPUT_CHECKPOINT_GRACE_SECONDS": "0"}, {}, {"grace_seconds": 0}),
        ({"GOODPUT_CHECKPOINT_GRACE_SECONDS": "120"}, {}, {"grace_seconds": 120}),
        ({"GOODPUT_JOB": "digits", "GOODPUT_NAMESPACE": "a"}, {}, {"job": "a/digits"}),
        ({"GOODPUT_JOB": "digits"}, {}, {}),
    ],
)
def test_settings(env: dict[str, str], overrides: dict[str, Any], expected: dict[str, Any]) -> None:
    worker = Worker.from_env(env, **overrides)
    assert {name: getattr(worker, name) for name in DEFAULTS} == DEFAULTS | expected


@pytest.mark.parametrize(
    "name", ["GOODPUT_CHECKPOINT_KEEP", "GOODPUT_CHECKPOINT_GRACE_SECONDS", "GOODPUT_RANK"]
)
def test_value_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 'many' is no number"):
        Worker.from_env({name: "many"})


def test_half_a_rank_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"GOODPUT_RANK: '1.5' is no number; leave it out for 0"):
        Worker.from_env({"GOODPUT_RANK": "1.5"})
