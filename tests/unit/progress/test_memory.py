"""What the endpoint remembers of each rank, and since when it can be relied on."""

from dataclasses import replace

import pytest

from goodput_operator.domain.heard import Heard, RankReports
from goodput_operator.domain.model import JobKey, JobView, PodView
from goodput_operator.progress.memory import PAUSE_SECONDS, Memory
from goodput_operator.progress.report import Report
from tests.unit.progress.fakes import KEY, UID, job, pod


class World:
    """A job whose ranks report."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.jobs: dict[JobKey, JobView] = {KEY: job()}
        self.memory = Memory(self, lambda: self.now)
        self.memory.listen()

    def job(self, key: JobKey) -> JobView | None:
        return self.jobs.get(key)

    def pod_by_uid(self, uid: str) -> PodView | None:
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """The process runs meanwhile."""
        for _ in range(int(seconds)):
            self.now += 1
            self.memory.attend()

    def report(self, step: int, rank: int = 0, attempt: int = 1, uid: str = "") -> None:
        sender = pod("worker", rank, attempt)
        sender = replace(sender, uid=uid or sender.uid)
        said = Report(attempt=attempt, role="worker", rank=rank + 1, step=step)
        self.memory.hear(sender, said)

    def heard(self) -> Heard:
        found = self.memory.view()
        assert found is not None
        return found


def test_each_rank_has_its_newest_step_and_when_it_was_first_reported() -> None:
    world = World()
    world.report(10)
    world.wait(5)
    world.report(10)
    world.report(11, rank=1)
    gang = world.heard().gangs[UID]
    assert gang.ranks == {
        ("worker", 0): RankReports(10, 1000.0),
        ("worker", 1): RankReports(11, 1005.0),
    }
    assert (gang.attempt, gang.first_step) == (1, 10)


def test_a_step_that_goes_back_is_no_step() -> None:
    world = World()
    world.report(10)
    world.wait(5)
    world.report(9)
    assert world.heard().gangs[UID].ranks["worker", 0] == RankReports(10, 1000.0)


def test_a_new_pod_of_a_rank_begins_anew() -> None:
    world = World()
    world.report(10)
    world.wait(5)
    world.report(7, uid="another")
    assert world.heard().gangs[UID].ranks["worker", 0] == RankReports(7, 1005.0)


def test_a_new_attempt_takes_the_place_of_the_one_before_which_is_no_longer_heard() -> None:
    world = World()
    world.report(10)
    world.report(4, rank=1, attempt=2)
    world.report(12)
    gang = world.heard().gangs[UID]
    assert (gang.attempt, gang.first_step) == (2, 4)
    assert set(gang.ranks) == {("worker", 1)}


@pytest.mark.parametrize("successor", [{}, {KEY: job(uid="another")}], ids=["gone", "made again"])
def test_a_job_that_is_gone_is_forgotten(successor: dict[JobKey, JobView]) -> None:
    world = World()
    world.report(10)
    world.memory.forget()
    assert UID in world.heard().gangs
    world.jobs = successor
    world.memory.forget()
    assert not world.heard().gangs


def test_nobody_is_heard_before_it_listens_nor_after_it_has_stopped() -> None:
    world = World()
    memory = Memory(world, lambda: world.now)
    memory.missed()
    assert memory.view() is None
    memory.listen()
    assert memory.view() is not None
    memory.stop()
    assert memory.view() is None


def test_it_has_listened_since_its_start() -> None:
    world = World()
    world.wait(3600)
    assert world.heard().since == 1000.0


@pytest.mark.parametrize("jump", [PAUSE_SECONDS + 1, 3600, -3600])
def test_a_process_that_stood_still_has_not_listened(jump: float) -> None:
    """Whether the decision or the timer comes first when it goes on."""
    world = World()
    world.now += jump
    assert world.heard().since == world.now


def test_reports_that_were_missed_count_as_not_listening() -> None:
    world = World()
    world.wait(100)
    world.memory.missed()
    assert world.heard().since == 1100.0
