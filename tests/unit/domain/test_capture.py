"""Kueue's pod integration takes our pods for jobs of their own."""

from dataclasses import replace

import pytest

from goodput_operator.api.status import Phase, Restarts
from goodput_operator.domain.model import JobKey, PodView
from tests.unit.domain.world import World

REASON = "KueueNotConfigured"


class Capturing(World):
    """A world whose Kueue takes pods, and lets them run if it has room for them."""

    capturing = True
    lets_run = True

    def _set_pod(self, pod: PodView) -> None:
        if pod.node is None and self.capturing:
            pod = replace(pod, captured=True)
        super()._set_pod(pod)

    def play(self) -> None:
        self.bind = self.lets_run or not self.capturing
        super().play()


@pytest.fixture(params=[False, True], ids=["held", "let run, on twice the quota"])
def world(request: pytest.FixtureRequest) -> Capturing:
    made = Capturing()
    made.add_nodes("n1", "n2")
    made.lets_run = request.param
    return made


def submitted(world: Capturing) -> JobKey:
    key = world.submit()
    world.run(key)
    return key


def running(world: Capturing, key: JobKey) -> str:
    condition = next(x for x in world.job(key).conditions if x.type == "Running")
    return f"{condition.reason}: {condition.message}"


def test_the_gang_is_withdrawn_whole_and_the_job_says_what_to_do(world: Capturing) -> None:
    key = submitted(world)
    status = world.job(key)
    assert (status.phase, status.reason) == (Phase.RESTARTING, REASON)
    assert "externalFrameworks" in running(world, key)
    assert not [pod for pod in world.pods.values() if not pod.deleting]
    assert status.restarts == Restarts()
    assert REASON in world.reasons(key)


def test_it_is_tried_seldom_and_gives_its_quota_back_and_says_why_all_the_time(
    world: Capturing,
) -> None:
    key = submitted(world)
    for _ in range(60):
        world.now += 10
        world.run(key)
        assert world.job(key).reason in (REASON, "WaitingForQuota")
    assert world.used() == 0
    assert world.job(key).phase == Phase.PENDING
    assert "externalFrameworks" in running(world, key)
    assert sum(world.created.values()) <= 2 * 8
    assert world.job(key).restarts == Restarts()


@pytest.mark.parametrize("waits", [1, 30])
def test_once_kueue_is_configured_it_goes_on_by_itself(world: Capturing, waits: int) -> None:
    key = submitted(world)
    for _ in range(waits):
        world.now += 10
        world.run(key)
    world.capturing = False
    world.now += 301
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.reason, status.ready) == (Phase.RUNNING, "AllRanksReady", "2/2")
    assert (world.used(), status.placement_failures) == (2, 0)


def test_a_gang_that_has_long_been_running_is_left_alone(world: Capturing) -> None:
    world.capturing = False
    key = submitted(world)
    for pod in world.pods_of(key):
        world.pods[pod.name] = replace(pod, captured=True)
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 1)
