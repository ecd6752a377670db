"""Reporting: in the background, the newest only, and never in the way of training."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from goodput_operator.worker import goodput_worker
from goodput_operator.worker.goodput_worker import Worker
from tests.unit.worker.endpoint import Endpoint


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput_worker, "DURABLE_WAIT", 2.0)


def test_first_report_is_sent_at_once_and_the_newest_of_the_rest(endpoint: Endpoint) -> None:
    worker = Worker(progress_url=endpoint.url, attempt=2, role="trainer")
    worker.report(1, total_steps=99, loss=0.5)
    endpoint.wait_for(1)
    for step in range(2, 50):
        worker.report(step, total_steps=99, loss=1 / step)
    worker.close()
    assert endpoint.bodies[1].pop("stepSeconds") > 0
    assert endpoint.bodies == [
        {"attempt": 2, "role": "trainer", "rank": 0, "step": step, "totalSteps": 99, "loss": loss}
        for step, loss in ((1, 0.5), (49, 1 / 49))
    ]


def test_last_step_does_not_wait_for_the_interval(endpoint: Endpoint) -> None:
    worker = Worker(progress_url=endpoint.url, rank=1)
    worker.report(1, total_steps=2)
    endpoint.wait_for(1)
    worker.report(2, total_steps=2)
    endpoint.wait_for(2)
    worker.close()


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), "none", None])
def test_loss_that_is_no_number_is_null(endpoint: Endpoint, loss: Any) -> None:
    worker = Worker(progress_url=endpoint.url)
    worker.report(1, loss=loss)
    worker.close()
    assert endpoint.bodies[0]["loss"] is None


def test_save_waits_until_the_step_is_durably_known(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.statuses = [503, 200]
    worker = Worker(progress_url=endpoint.url, directory=tmp_path)
    with worker.checkpoint(7) as path:
        (path / "state").write_text("7")
    assert len(endpoint.bodies) == 2
    assert endpoint.bodies[-1]["checkpointStep"] == 7
    assert endpoint.bodies[-1]["step"] == 7
    assert endpoint.bodies[-1]["checkpointStallSeconds"] > 0
    worker.close()


def test_unreachable_endpoint_costs_a_bounded_wait(tmp_path: Path) -> None:
    worker = Worker(progress_url="http://127.0.0.1:9/", directory=tmp_path)
    worker.report(1)
    assert not worker.report_durable(1, wait=0.2)
    assert not worker.stop_requested
    worker.close(0.1)


def test_refused_report_is_not_repeated(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.statuses = [400]
    worker = Worker(progress_url=endpoint.url)
    worker.report(1)
    worker.close()
    assert len(endpoint.bodies) == 1
    assert "step: no" in caplog.text


def test_newer_attempt_asks_this_one_to_stop(endpoint: Endpoint) -> None:
    endpoint.statuses = [409]
    worker = Worker(progress_url=endpoint.url)
    assert not worker.stop_requested
    assert not worker.report_durable(5)
    assert worker.superseded
    assert worker.stop_requested
    worker.report(6)
    worker.close()
    assert len(endpoint.bodies) == 1


def test_token_is_read_anew_for_each_report(endpoint: Endpoint, tmp_path: Path) -> None:
    token = tmp_path / "token"
    worker = Worker(progress_url=endpoint.url, token_file=str(token))
    for value in ("old", "new"):
        token.write_text(value + "\n")
        worker.report_durable(1)
    worker.close()
    assert endpoint.tokens == ["Bearer old", "Bearer new"]


def test_missing_token_file_does_not_disturb_training(endpoint: Endpoint, tmp_path: Path) -> None:
    worker = Worker(progress_url=endpoint.url, token_file=str(tmp_path / "absent"))
    worker.report(1)
    worker.close(0.2)
    assert endpoint.bodies == []


def test_resume_says_where_from(endpoint: Endpoint, tmp_path: Path) -> None:
    with Worker(directory=tmp_path).checkpoint(40) as path:
        (path / "state").write_text("40")
    worker = Worker(progress_url=endpoint.url, directory=tmp_path, attempt=2)
    worker.resume()
    worker.close()
    body = endpoint.bodies[0]
    assert (body["step"], body["resumedFromStep"], body["checkpointStep"]) == (40, 40, 40)


def test_without_the_operator_everything_is_a_no_op(tmp_path: Path) -> None:
    threads = threading.active_count()
    worker = Worker.from_env({})
    assert worker.resume() is None
    worker.report(1, loss=0.5)
    assert not worker.should_checkpoint(1)
    assert not worker.report_durable(1)
    with worker.checkpoint(1) as path:
        (path / "state").write_text("discarded")
    with worker.checkpoint_part_dir(1) as part:
        (part / "state").write_text("discarded")
    assert not path.exists()
    assert not part.exists()
    assert not worker.stop_requested
    worker.close()
    assert threading.active_count() <= threads


def test_on_a_laptop_running_again_resumes(tmp_path: Path) -> None:
    env = {"GOODPUT_CHECKPOINT_DIR": str(tmp_path)}
    first = Worker.from_env(env)
    first.resume()
    with first.checkpoint(9) as path:
        (path / "state").write_text("9")
    found = Worker.from_env(env).resume()
    assert found is not None
    assert found.step == 9


def test_object_store_is_left_to_libraries(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker.from_env({"GOODPUT_CHECKPOINT_DIR": "gs://bucket/digits-1234"})
    assert worker.directory is None
    assert "report_durable" in caplog.text


def test_sigterm_sets_stop_requested_and_calls_the_handler_before() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:
        worker = Worker.from_env({})
        assert worker.watch_sigterm()
        assert not worker.stop_requested
        signal.raise_signal(signal.SIGTERM)
        assert worker.stop_requested
        assert called == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_is_watched_by_the_main_thread_only() -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(Worker().watch_sigterm()))
    thread.start()
    thread.join()
    assert answers == [False]


def test_file_stands_alone() -> None:
    """Copied next to a script and run without site-packages, it works."""
    file = Path(goodput_worker.__file__)
    script = f"import sys; sys.path.insert(0, {str(file.parent)!r}); import goodput_worker"
    subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True)
