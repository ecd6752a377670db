"""Webhooks that hang are not asked for a while, so that one job does not hold up all others.

There is one worker. A webhook that hangs takes its time-out each time, 10 s by default; with many
jobs that need it, one after the other, a lost node of yet another job would wait for all of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from goodput_operator.domain import plan as p
from goodput_operator.kube.errors import WebhookFailed

HUNG_SECONDS = 5.0
"""A webhook that takes longer to fail hangs."""
SPARED_SECONDS = 5.0
"""For so long nobody else asks it: what it would be asked for fails at once, and is tried later."""

_ABOUT_WORKLOADS = (
    p.AnswerChecks,
    p.CreateWorkload,
    p.FinishWorkload,
    p.ReclaimPods,
    p.ReleaseQuota,
    p.SetPodsReady,
    p.SetWorkloadActive,
)


class HungWebhooks:
    """What webhooks have hung of late, by the kind of object that they are asked about."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hung: dict[str, tuple[float, str]] = {}

    @contextmanager
    def spare(self, action: p.Action, doing: str) -> Iterator[None]:
        """Carry an action out within this. Raises WebhookFailed at once if its webhook hangs."""
        about, began = _about(action), self._clock()
        since, said = self._hung.get(about, (float("-inf"), ""))
        if began - since < SPARED_SECONDS:
            raise WebhookFailed(doing, said)
        try:
            yield
        except WebhookFailed as error:
            now = self._clock()
            if about and now - began >= HUNG_SECONDS:
                self._hung[about] = (now, error.said)
            raise


def _about(action: p.Action) -> str:
    """The kind of object whose creation or change a webhook may be asked about."""
    if isinstance(action, p.CreatePod):
        return "pods"
    return "workloads" if isinstance(action, _ABOUT_WORKLOADS) else ""
