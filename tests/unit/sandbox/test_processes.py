"""Only the process that was recorded is ended, never another one of the same number."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodput_sandbox.processes import (
    ProcessId,
    end_all,
    environment,
    identify,
    marked,
    start,
    wait_gone,
)
from goodput_sandbox.state import Entry, ProcessTable

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessId]:
    process = start(SLEEP, tmp_path / "log", environment(tmp_path))
    yield process
    end_all([process], signal.SIGKILL)


def test_a_process_is_found_by_its_mark_even_if_nobody_recorded_it(
    tmp_path: Path, sleeper: ProcessId
) -> None:
    # Between its fork and its exec, longer under load, it still has our own environment.
    deadline = time.monotonic() + 2.0
    while sleeper not in (found := set(marked(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sleeper in found
    assert not set(marked(tmp_path / "other"))


def test_an_ended_process_is_reaped_and_not_alive(sleeper: ProcessId) -> None:
    assert sleeper.alive()
    assert end_all([sleeper], signal.SIGTERM) == []
    assert not sleeper.alive()
    assert identify(sleeper.pid) is None


def test_a_frozen_process_is_ended_too(sleeper: ProcessId) -> None:
    sleeper.send(signal.SIGSTOP)
    assert end_all([sleeper], signal.SIGTERM) == []


def test_another_process_of_the_same_number_is_left_alone(sleeper: ProcessId) -> None:
    earlier = ProcessId(sleeper.pid, sleeper.start_time_ticks - 1)
    assert not earlier.send(signal.SIGKILL)
    assert wait_gone([sleeper], 0.1) == [sleeper]


def test_the_table_ends_what_it_recorded_but_not_ourselves(
    tmp_path: Path, sleeper: ProcessId
) -> None:
    table = ProcessTable(tmp_path / "processes.json")
    own = identify(os.getpid())
    assert own is not None
    table.add(Entry("sleeper", sleeper.pid, sleeper.start_time_ticks, SLEEP))
    table.add(Entry("us", own.pid, own.start_time_ticks, []))
    assert table.alive("sleeper")
    table.stop_all()
    assert not sleeper.alive()
    assert table.entries() == []


def test_recording_a_name_again_replaces_it(tmp_path: Path) -> None:
    table = ProcessTable(tmp_path / "processes.json")
    table.add(Entry("a", 1, 1, []))
    table.add(Entry("a", 2, 2, []))
    assert [e.pid for e in table.entries()] == [2]


def test_proxies_are_not_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert "HTTPS_PROXY" not in environment(tmp_path)
