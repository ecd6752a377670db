"""What the probes answer, and when the process had better be restarted."""

import time
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession

from goodput_operator.config import Config
from goodput_operator.domain.model import JobKey
from goodput_operator.metrics import Metrics
from goodput_operator.runtime import health
from goodput_operator.runtime.operator import Operator
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient

KEY = JobKey("ns", "a")


@pytest.fixture
def operator() -> Operator:
    async def connect(metrics: Metrics) -> FakeClient:
        return FakeClient()

    return Operator(Config(liveness_seconds=60), connect)  # type: ignore[arg-type]


def test_an_operator_that_still_lists_is_alive_but_not_ready(operator: Operator) -> None:
    operator.queue.add(KEY)
    assert operator.ailment() is None
    assert not operator.ready


def test_a_worker_stuck_in_one_job_is_an_ailment(operator: Operator) -> None:
    operator._worker = SimpleNamespace(busy_seconds=61.0)  # type: ignore[assignment]
    assert operator.ailment() == "the worker has been at the same job for 61 s"


def test_a_worker_that_gets_on_is_well_however_long_the_queue(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator._worker = SimpleNamespace(busy_seconds=2.0)  # type: ignore[assignment]
    operator.queue._clock = lambda: 0.0
    operator.queue.add(KEY)
    operator.queue._clock = lambda: 1000.0
    assert operator.ailment() is None


def test_due_jobs_that_nobody_takes_are_an_ailment(operator: Operator) -> None:
    operator._worker = SimpleNamespace(busy_seconds=None)  # type: ignore[assignment]
    operator.queue._clock = lambda: 0.0
    operator.queue.add(KEY)
    operator.queue._clock = lambda: 61.0
    assert operator.ailment() == "the work queue has stood still for 61 s"


def test_silence_on_every_stream_is_an_ailment(operator: Operator) -> None:
    operator.ready = True
    operator._last_sign = time.monotonic() - 61
    assert "every stream has been silent" in (operator.ailment() or "")
    operator.alive()
    assert operator.ailment() is None


async def test_the_operator_is_ready_once_everything_is_listed(operator: Operator) -> None:
    await operator.connect()
    client = operator.client
    client.lists["trainingjobs"] = ([raws.job()], "40")  # type: ignore[attr-defined]
    client.lists["pods"] = ([], "41")  # type: ignore[attr-defined]
    assert await operator.prime() == "41"
    assert operator.ready
    assert [job.key.name for job in operator.store.all_jobs()] == ["digits"]


async def test_probes_and_metrics_are_served(operator: Operator) -> None:
    operator.store.put_job(raws.job(status={"phase": "Running", "attempt": 2}))
    runner = await health.serve(operator, "127.0.0.1:0")
    try:
        port = runner.addresses[0][1]
        async with ClientSession(f"http://127.0.0.1:{port}") as session:

            async def fetch(path: str) -> tuple[int, str]:
                async with session.get(path) as response:
                    return response.status, await response.text()

            assert await fetch("/healthz") == (200, "ok")
            assert (await fetch("/readyz"))[0] == 503
            operator.ready = True
            assert await fetch("/readyz") == (200, "ok")
            operator._last_sign = time.monotonic() - 61
            assert (await fetch("/healthz"))[0] == 503
            status, text = await fetch("/metrics")
            assert status == 200
            assert 'goodput_job_attempt{job_name="digits",namespace="team-a"} 2.0' in text
    finally:
        await runner.cleanup()
