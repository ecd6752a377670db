"""kopf may end by itself: then its watches begin anew, and nothing of ours ends with it."""

import asyncio
from typing import Any

import kopf
import pytest

from goodput_operator import __main__ as main
from goodput_operator.config import Config
from goodput_operator.runtime.operator import Operator


class Kopf:
    """Ends with an error each time, until it has been run often enough to see the flag."""

    def __init__(self, stop: asyncio.Event, runs: int) -> None:
        self.runs, self._stop, self._last = 0, stop, runs
        self.settings: kopf.OperatorSettings | None = None

    async def spawn_tasks(self, settings: kopf.OperatorSettings, **_: Any) -> list[Any]:
        self.settings = settings
        return []

    async def run_tasks(self, tasks: list[Any], ignored: Any) -> None:
        self.runs += 1
        assert asyncio.current_task() in ignored
        if self.runs == self._last:
            self._stop.set()
            return
        raise ValueError("half a line")


@pytest.fixture
def operator() -> Operator:
    async def connect(metrics: object) -> object:
        raise AssertionError("not needed")

    return Operator(Config(), connect)  # type: ignore[arg-type]


async def test_watches_that_end_begin_anew_and_that_is_counted_and_told(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    fake = Kopf(stop, runs=4)
    monkeypatch.setattr(main.kopf, "spawn_tasks", fake.spawn_tasks)
    monkeypatch.setattr(main.kopf, "run_tasks", fake.run_tasks)
    monkeypatch.setattr(main, "KOPF_WAITS", (0.01, 0.02))
    with pytest.raises(main._Stopped):
        await main._watch(operator, stop)
    assert fake.runs == 4
    assert caplog.text.count("half a line") == 3
    sample = operator.metrics.registry.get_sample_value
    assert sample("goodput_operator_errors_total", {"kind": "watch"}) == 3
    assert fake.settings is not None
    assert fake.settings.process.ultimate_exiting_timeout is None, "it would kill the process"


async def test_being_asked_to_stop_is_not_waited_with(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    fake = Kopf(stop, runs=100)
    monkeypatch.setattr(main.kopf, "spawn_tasks", fake.spawn_tasks)
    monkeypatch.setattr(main.kopf, "run_tasks", fake.run_tasks)
    monkeypatch.setattr(main, "KOPF_WAITS", (30.0,))
    asyncio.get_running_loop().call_later(0.05, stop.set)
    async with asyncio.timeout(2):
        with pytest.raises(main._Stopped):
            await main._watch(operator, stop)
    assert fake.runs == 1
