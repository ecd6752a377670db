"""What reports change in what is known of a job."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.progress.merge import MAX_STEP_JUMP, Merged, Reported, merge
from goodput_operator.progress.refusal import Outcome, RefusedError
from goodput_operator.progress.report import Report

T0, T1 = "2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:01.000000Z"


def report(step: int, **fields: Any) -> Report:
    known: dict[str, Any] = {"attempt": 1, "role": "worker", "rank": 0, "step": step}
    return Report(**(known | fields))


def after(*reports: Report) -> Reported:
    known = Reported()
    for each in reports:
        known = merge(known, each, T0).reported
    return known


def last(*reports: Report) -> Merged:
    return merge(after(*reports[:-1]), reports[-1], T1)


def test_first_report_of_a_job_is_urgent() -> None:
    merged = last(report(0))
    assert merged.urgent
    assert not merged.durable
    assert merged.reported.progress is not None
    assert merged.reported.progress.first_step_at is None


def test_first_step_is_urgent_and_timed() -> None:
    merged = last(report(0), report(1))
    assert merged.urgent
    assert merged.reported.progress is not None
    assert merged.reported.progress.first_step_at == T1


def test_later_steps_are_not_urgent() -> None:
    merged = last(report(0), report(1), report(2, loss=0.5))
    assert not merged.urgent
    assert not merged.durable
    assert merged.reported.progress is not None
    assert (merged.reported.progress.step, merged.reported.progress.loss) == (2, 0.5)


def test_last_step_is_urgent() -> None:
    assert last(report(8, total_steps=10), report(9), report(10, total_steps=10)).urgent
    assert not last(report(8, total_steps=10), report(9, total_steps=10)).urgent


def test_equal_report_changes_nothing() -> None:
    known = after(report(5, loss=0.5, total_steps=9, checkpoint_step=5))
    again = merge(known, report(5, loss=0.5, total_steps=9, checkpoint_step=5), T1)
    assert again.reported == known
    assert not again.urgent
    assert not again.durable


def test_slower_rank_does_not_turn_the_step_back() -> None:
    merged = last(report(10, loss=0.1), report(7, rank=1, loss=0.9))
    assert merged.reported.progress is not None
    assert (merged.reported.progress.step, merged.reported.progress.loss) == (10, 0.1)


def test_rank_without_loss_leaves_that_of_another() -> None:
    progress = last(report(10, loss=0.1), report(11, rank=1)).reported.progress
    assert progress is not None
    assert (progress.step, progress.loss, progress.rank) == (11, 0.1, 1)


def test_loss_that_is_no_number_any_more_disappears() -> None:
    progress = last(report(10, loss=0.1), report(11, loss=None)).reported.progress
    assert progress is not None
    assert progress.loss is None


def test_new_attempt_starts_its_progress_anew_and_keeps_the_checkpoint() -> None:
    merged = last(
        report(120, checkpoint_step=100), report(100, attempt=2, resumed_from_step=100, rank=1)
    )
    assert merged.urgent
    progress, checkpoint = merged.reported.progress, merged.reported.checkpoint
    assert progress is not None
    assert checkpoint is not None
    assert (progress.attempt, progress.step, progress.resumed_from_step) == (2, 100, 100)
    assert progress.first_step_at is None
    assert (checkpoint.step, checkpoint.attempt) == (100, 1)


def test_first_new_step_after_a_resume_is_the_one_beyond_it() -> None:
    resumed = report(100, attempt=2, resumed_from_step=100)
    merged = last(report(120, checkpoint_step=100), resumed, report(101, attempt=2))
    assert merged.urgent
    assert merged.reported.progress is not None
    assert merged.reported.progress.first_step_at == T1


def test_damaged_checkpoint_that_was_passed_over_is_kept_and_the_durable_step_set_back() -> None:
    before = report(120, checkpoint_step=100)
    other = report(80, attempt=2, rank=1, resumed_from_step=80)
    rank_0 = report(80, attempt=2, resumed_from_step=80, checkpoint_step=80, corrupt_step=100)
    merged = last(before, other, rank_0)
    assert merged.urgent
    assert merged.reported.progress is not None
    assert merged.reported.progress.corrupt_step == 100
    assert merged.reported.checkpoint is not None
    assert merged.reported.checkpoint.step == 80
    later = last(before, other, rank_0, report(81, attempt=2))
    assert later.reported.progress is not None
    assert later.reported.progress.corrupt_step == 100, "as long as the attempt lasts"
    third = last(before, rank_0, report(90, attempt=3, resumed_from_step=90))
    assert third.reported.progress is not None
    assert third.reported.progress.corrupt_step is None


def test_durable_step_is_set_back_to_0_when_all_is_damaged() -> None:
    rank_0 = report(0, attempt=2, resumed_from_step=0, checkpoint_step=0, corrupt_step=100)
    merged = last(report(120, checkpoint_step=100), rank_0)
    assert merged.durable
    assert merged.reported.checkpoint is not None
    assert merged.reported.checkpoint.step == 0


def test_older_attempt_is_refused() -> None:
    with pytest.raises(RefusedError, match="attempt: 1 is over") as refused:
        last(report(5, attempt=2), report(50))
    assert refused.value.outcome is Outcome.SUPERSEDED
    assert refused.value.status == 409


def test_absurd_step_is_refused() -> None:
    with pytest.raises(RefusedError, match=f"step: {MAX_STEP_JUMP + 6}"):
        last(report(5), report(MAX_STEP_JUMP + 6))


def test_new_checkpoint_is_durable() -> None:
    merged = last(report(5), report(6, checkpoint_step=5, checkpoint_stall_seconds=0.2))
    assert merged.durable
    assert merged.reported.checkpoint is not None
    assert merged.reported.checkpoint.model_dump() == {
        "step": 5,
        "attempt": 1,
        "saved_at": T1,
        "stall_seconds": 0.2,
        "mean_stall_seconds": 0.2,
    }


def test_older_checkpoint_of_the_same_attempt_changes_nothing() -> None:
    merged = last(report(20, checkpoint_step=20), report(21, checkpoint_step=10))
    assert not merged.durable
    assert merged.reported.checkpoint is not None
    assert merged.reported.checkpoint.step == 20


def test_directory_is_the_truth_when_the_durable_checkpoint_is_gone() -> None:
    back = report(80, attempt=2, resumed_from_step=80, checkpoint_step=80)
    merged = last(report(120, checkpoint_step=100, checkpoint_stall_seconds=1.0), back)
    assert merged.durable
    assert merged.reported.checkpoint is not None
    assert (merged.reported.checkpoint.step, merged.reported.checkpoint.attempt) == (80, 2)
    assert merged.reported.checkpoint.saved_at == T0, "it cannot have been saved since"
    assert merged.reported.checkpoint.stall_seconds is None


steps = st.integers(min_value=0, max_value=300)
reports = st.builds(
    lambda attempt, rank, step, saved: report(
        step, attempt=attempt, rank=rank, checkpoint_step=min(saved, step) if not rank else None
    ),
    st.integers(min_value=1, max_value=3),
    st.integers(min_value=0, max_value=2),
    steps,
    steps,
)


@given(st.lists(reports, max_size=30))
def test_nothing_goes_back(stream: list[Report]) -> None:
    known = Reported()
    for each in stream:
        if known.progress is not None and each.attempt < known.progress.attempt:
            with pytest.raises(RefusedError):
                merge(known, each, T1)
            continue
        merged = merge(known, each, T1)
        before, now = known.progress, merged.reported.progress
        assert now is not None
        if before is not None:
            assert (now.attempt, now.step) >= (before.attempt, before.step)
        saved_before, saved = known.checkpoint, merged.reported.checkpoint
        assert (saved_before is None) or (saved is not None and saved.step >= saved_before.step)
        assert merged.durable == (saved != saved_before)
        assert merge(merged.reported, each, "later").reported == merged.reported
        known = merged.reported
