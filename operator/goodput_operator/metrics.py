"""Every Prometheus metric, in one registry. Series of a job vanish with it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from goodput_operator.api.status import Cause, Phase, Recovery
from goodput_operator.api.times import parse_time
from goodput_operator.domain.model import JobKey, JobView

_JOB = ("namespace", "job_name")
"""Not ``job``, which Prometheus itself sets to the name of the scrape."""
_STAGES = ("detect", "wait", "place", "create", "bind", "start", "restore", "total")
_RECOVERY_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The operator's own health, and what its jobs are doing."""

    def __init__(
        self,
        jobs: Callable[[], Iterable[JobView]],
        depth: Callable[[], int],
        overdue: Callable[[], float],
        silence: Callable[[], tuple[int, bool]] = lambda: (0, False),
        held_quota: Callable[[], Iterable[tuple[JobKey, float]]] = lambda: (),
        penalties: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """All are asked at each scrape.

        ``silence``: how many nodes nobody hears from, and whether they are so many that nothing is
        restarted for them. ``held_quota``: jobs whose quota is held though nothing runs on it, and
        for how many seconds. ``penalties``: scores of the nodes that have
        failed jobs, by name.
        """
        self.registry = CollectorRegistry()
        self._reconcile = Histogram(
            "goodput_operator_reconcile_seconds",
            "Time to decide about a job and to carry the decision out.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._waited = Histogram(
            "goodput_operator_queue_wait_seconds",
            "Time for which a job had been due when it was looked at.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._errors = Counter(
            "goodput_operator_errors",
            "Decisions, and attempts to carry them out, that ended in an error, by kind.",
            ("kind",),
            registry=self.registry,
        )
        self._requests = Counter(
            "goodput_operator_api_requests",
            "Requests to the API server, by verb, resource and HTTP status code.",
            ("verb", "resource", "code"),
            registry=self.registry,
        )
        self._retries = Counter(
            "goodput_operator_api_retries",
            "Requests to the API server that were sent again, by verb and resource.",
            ("verb", "resource"),
            registry=self.registry,
        )
        self._reports = Counter(
            "goodput_progress_reports",
            "Reports of workers, by what became of them.",
            ("outcome",),
            registry=self.registry,
        )
        self._recovery = Histogram(
            "goodput_job_recovery_seconds",
            "Time between a failure and the first new step, by its cause and by stage: detect, "
            "wait, place, create, bind, start, restore, and total.",
            ("cause", "stage"),
            buckets=_RECOVERY_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_Jobs(jobs))
        self.registry.register(_Queue(depth, overdue))
        self.registry.register(_Silence(silence))
        self.registry.register(_HeldQuota(held_quota))
        self.registry.register(_Penalties(penalties))

    def reconciled(self, seconds: float, waited: float) -> None:
        """A job was worked on for so long, after it had been due for so long."""
        self._reconcile.observe(seconds)
        self._waited.observe(max(0.0, waited))

    def failed(self, kind: str) -> None:
        """A decision, or the attempt to carry it out, ended in an error of this kind."""
        self._errors.labels(kind).inc()

    def answered(self, verb: str, resource: str, code: int) -> None:
        """A request about objects of this plural got this HTTP status code; 0: no answer."""
        self._requests.labels(verb, resource, str(code) if code else "none").inc()

    def retried(self, verb: str, resource: str) -> None:
        """A request is sent again."""
        self._retries.labels(verb, resource).inc()

    def recovered(self, recovery: Recovery) -> None:
        """A job trains again after a failure."""
        cause = recovery.cause.value if recovery.cause else "none"
        for stage in _STAGES:
            seconds = getattr(recovery, stage)
            if seconds is not None:
                self._recovery.labels(cause, stage).observe(seconds)

    def reported(self, outcome: str) -> None:
        """A worker's report was accepted, or refused for this reason."""
        self._reports.labels(outcome).inc()


class _Queue(Collector):
    def __init__(self, depth: Callable[[], int], overdue: Callable[[], float]) -> None:
        self._depth, self._overdue = depth, overdue

    def collect(self) -> Iterator[Metric]:
        """Depth and age of the work queue."""
        yield GaugeMetricFamily(
            "goodput_operator_queue_depth", "Jobs that are due.", value=self._depth()
        )
        yield GaugeMetricFamily(
            "goodput_operator_queue_overdue_seconds",
            "For how long the oldest job in the queue has been due.",
            value=self._overdue(),
        )


class _Silence(Collector):
    def __init__(self, silence: Callable[[], tuple[int, bool]]) -> None:
        self._silence = silence

    def collect(self) -> Iterator[Metric]:
        """Nodes that are silent, and what follows from it."""
        nodes, held = self._silence()
        yield GaugeMetricFamily(
            "goodput_operator_silent_nodes", "Nodes that nobody hears from.", value=nodes
        )
        yield GaugeMetricFamily(
            "goodput_operator_cluster_silent",
            "1 while most nodes have fallen silent at once, and no job is restarted for it.",
            value=int(held),
        )


class _HeldQuota(Collector):
    def __init__(self, held: Callable[[], Iterable[tuple[JobKey, float]]]) -> None:
        self._held = held

    def collect(self) -> Iterator[Metric]:
        """One series for each job of which this is true; normally none lasts for a second."""
        seconds = GaugeMetricFamily(
            "goodput_job_quota_held_seconds",
            "Time since the job was evicted, or over, while its quota is held though no pod is "
            "left.",
            labels=_JOB,
        )
        for key, value in self._held():
            seconds.add_metric((key.namespace, key.name), value)
        yield seconds


class _Penalties(Collector):
    def __init__(self, penalties: Callable[[], Mapping[str, float]]) -> None:
        self._penalties = penalties

    def collect(self) -> Iterator[Metric]:
        """One series per node that has a penalty; a node without one has none."""
        family = GaugeMetricFamily(
            "goodput_node_penalty",
            "Weight of the failures that the node is blamed for, decayed until now.",
            labels=("node",),
        )
        for node, score in self._penalties().items():
            family.add_metric((node,), score)
        yield family


class _Jobs(Collector):
    def __init__(self, jobs: Callable[[], Iterable[JobView]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """One series per job, or per job and cause; a job that reports nothing has no step."""
        phase = GaugeMetricFamily(
            "goodput_job_phase", "1 for the phase that the job is in.", labels=(*_JOB, "phase")
        )
        attempt = GaugeMetricFamily("goodput_job_attempt", "Newest attempt.", labels=_JOB)
        ready = GaugeMetricFamily("goodput_job_ready_ranks", "Ranks that are ready.", labels=_JOB)
        ranks = GaugeMetricFamily("goodput_job_ranks", "Ranks of the gang.", labels=_JOB)
        step = GaugeMetricFamily("goodput_job_step", "Last step reported.", labels=_JOB)
        saved = GaugeMetricFamily(
            "goodput_job_checkpoint_step", "Step of the newest durable checkpoint.", labels=_JOB
        )
        age = GaugeMetricFamily(
            "goodput_job_checkpoint_age_seconds",
            "Time since the newest durable checkpoint was reported.",
            labels=_JOB,
        )
        restarts = CounterMetricFamily(
            "goodput_job_restarts",
            "Interruptions of the job, by cause.",
            labels=(*_JOB, "cause"),
        )
        for job in self._jobs():
            status, labels = job.status, (job.key.namespace, job.key.name)
            phase.add_metric((*labels, (status.phase or Phase.PENDING).value), 1)
            attempt.add_metric(labels, status.attempt)
            ready.add_metric(labels, status.ready_replicas or 0)
            ranks.add_metric(labels, status.replicas or 0)
            for cause in Cause:
                restarts.add_metric((*labels, cause.value), status.restarts.of(cause))
            if status.progress is not None:
                step.add_metric(labels, status.progress.step)
            if status.checkpoint is not None:
                saved.add_metric(labels, status.checkpoint.step)
                since = time.time() - parse_time(status.checkpoint.saved_at)
                age.add_metric(labels, max(0.0, since))
        yield from (phase, attempt, ready, ranks, step, saved, age, restarts)
