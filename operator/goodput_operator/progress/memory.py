"""What each rank has reported last, in memory; and since when all reports would have been heard."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from goodput_operator.domain.heard import GangReports, Heard, RankKey, RankReports
from goodput_operator.domain.model import JobKey, PodView
from goodput_operator.progress.ports import ProgressStore
from goodput_operator.progress.report import Report

PAUSE_SECONDS = 10.0
"""A process that has stood still for longer, or whose clock was set, has not listened meanwhile."""


@dataclass(slots=True)
class _Gang:
    key: JobKey
    view: GangReports
    ranks: dict[RankKey, RankReports] = field(default_factory=dict)
    """The view looks at these."""
    pods: dict[RankKey, str] = field(default_factory=dict)
    """UIDs of the pods that they were heard from."""


class Memory:
    """Holds the newest attempt of each job, until the job is gone. Sizes are those of the gangs."""

    def __init__(self, store: ProgressStore, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._since: float | None = None
        self._attended_at = 0.0
        self._gangs: dict[str, _Gang] = {}
        self._views: dict[str, GangReports] = {}

    def listen(self) -> None:
        """The endpoint listens from now on."""
        self._since = self._attended_at = self._clock()

    def stop(self) -> None:
        """The endpoint no longer listens: nobody can tell whether a gang makes steps."""
        self._since = None

    def missed(self) -> None:
        """A report was refused for no fault of its sender's: who knows how many were."""
        if self._since is not None:
            self._since = self._clock()

    def attend(self) -> None:
        """To be called every few seconds: what was longer ago than that was not heard."""
        now = self._clock()
        if abs(now - self._attended_at) > PAUSE_SECONDS:
            self.missed()
        self._attended_at = now

    def hear(self, pod: PodView, report: Report) -> None:
        """Take over a report that is believed. One of an attempt that is over changes nothing."""
        gang = self._gang(pod, report)
        if gang.view.attempt != report.attempt:
            return
        rank = pod.role, pod.rank
        known = gang.ranks.get(rank) if gang.pods.get(rank) == pod.uid else None
        gang.pods[rank] = pod.uid
        if known is None or report.step > known.step:
            gang.ranks[rank] = RankReports(report.step, self._clock())

    def _gang(self, pod: PodView, report: Report) -> _Gang:
        gang = self._gangs.get(pod.job_uid)
        if gang is None or gang.view.attempt < report.attempt:
            ranks: dict[RankKey, RankReports] = {}
            view = GangReports(report.attempt, report.step, ranks)
            gang = _Gang(JobKey(pod.namespace, pod.job), view, ranks)
            self._gangs[pod.job_uid], self._views[pod.job_uid] = gang, view
        return gang

    def view(self) -> Heard | None:
        """What a decision may look at; shared, not copied. None while nobody listens."""
        self.attend()
        return Heard(self._since, self._views) if self._since is not None else None

    def forget(self) -> None:
        """Forget the jobs that are gone."""
        for uid, gang in list(self._gangs.items()):
            job = self._store.job(gang.key)
            if job is None or job.uid != uid:
                del self._gangs[uid], self._views[uid]
