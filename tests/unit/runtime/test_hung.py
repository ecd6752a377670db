"""One webhook that hangs does not have every job wait for its time-out."""

import pytest

from goodput_operator.domain import plan as p
from goodput_operator.kube.errors import Forbidden, WebhookFailed
from goodput_operator.runtime.hung import HUNG_SECONDS, SPARED_SECONDS, HungWebhooks

CREATE = p.CreateWorkload("tj-a")
READY = p.SetPodsReady("tj-b", "1", True, "ready")
POD = p.CreatePod(1, "worker", 0, "n1")
STOP = p.DeletePod("a", "uid", None)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def fail_after(self, seconds: float, error: Exception) -> None:
        self.now += seconds
        raise error


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hung(clock: Clock) -> HungWebhooks:
    return HungWebhooks(clock)


def fail(hung: HungWebhooks, clock: Clock, seconds: float, action: p.Action = CREATE) -> None:
    said = WebhookFailed("create workloads", "mworkload.kb.io: deadline exceeded")
    with pytest.raises(WebhookFailed), hung.spare(action, "create workload tj-a"):
        clock.fail_after(seconds, said)


def test_what_hung_is_not_asked_about_others_for_a_while(hung: HungWebhooks, clock: Clock) -> None:
    fail(hung, clock, 10)
    asked = False
    with (
        pytest.raises(WebhookFailed, match=r"set pods ready tj-b: mworkload.kb.io"),
        hung.spare(READY, "set pods ready tj-b"),
    ):
        asked = True
    assert not asked
    clock.now += SPARED_SECONDS
    with hung.spare(READY, "set pods ready tj-b"):
        asked = True
    assert asked


def test_nothing_else_is_held_up(hung: HungWebhooks, clock: Clock) -> None:
    fail(hung, clock, 10)
    for action in (POD, STOP, p.EnsureService()):
        with hung.spare(action, "x"):
            pass


def test_what_fails_at_once_is_asked_again(hung: HungWebhooks, clock: Clock) -> None:
    fail(hung, clock, HUNG_SECONDS - 1)
    with hung.spare(CREATE, "create workload tj-a"):
        pass


def test_a_slow_refusal_is_no_hanging_webhook(hung: HungWebhooks, clock: Clock) -> None:
    with pytest.raises(Forbidden), hung.spare(CREATE, "x"):
        clock.fail_after(20, Forbidden("create workloads", "no"))
    with hung.spare(CREATE, "x"):
        pass
