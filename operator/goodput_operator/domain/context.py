"""What one decision is about: a job, and all that belongs to it."""

from dataclasses import dataclass
from functools import cached_property

from goodput_operator import constants as c
from goodput_operator.api.spec import Role, TrainingJobSpec
from goodput_operator.api.status import Placement, Progress, TrainingJobStatus
from goodput_operator.api.times import parse_time
from goodput_operator.domain import conditions, names, size
from goodput_operator.domain.model import JobView, NodeView, PodView, Snapshot, WorkloadView
from goodput_operator.domain.placement import codec
from goodput_operator.domain.policy import Policy
from goodput_operator.domain.silence import ClusterSilence, find_silence

A_MOMENT = 0.1
"""Seconds, so that a time that is waited for is over when it is looked at."""


@dataclass(frozen=True)
class Context:
    """The inputs of a decision, with what every step of it asks for."""

    job: JobView
    spec: TrainingJobSpec
    snapshot: Snapshot
    now: float
    policy: Policy

    @property
    def status(self) -> TrainingJobStatus:
        """The job's status as it is stored."""
        return self.job.status

    @property
    def terminal(self) -> bool:
        """Complete or Failed: nothing is ever started again."""
        stored = self.status.conditions
        return conditions.is_true(stored, c.ConditionType.COMPLETE) or conditions.is_true(
            stored, c.ConditionType.FAILED
        )

    @cached_property
    def workload_name(self) -> str:
        """Name of the Workload that fits the spec."""
        return names.workload_name(self.job)

    @cached_property
    def workloads(self) -> tuple[WorkloadView, ...]:
        """All Workloads of this very job that are not being deleted."""
        return tuple(
            workload
            for workload in self.snapshot.workloads.get(self.job.key, ())
            if workload.owner_uid == self.job.uid and not workload.deleting
        )

    @cached_property
    def workload(self) -> WorkloadView | None:
        """The Workload that fits the spec, if it exists.

        Of several, the newest that holds quota: it has taken over from the one before it.
        """
        prefix = names.slice_prefix(self.job)
        holding = [each for each in self.workloads if each.holds_quota]
        slices = [each for each in holding if each.name.startswith(prefix)]
        if slices:
            return max(slices, key=lambda each: (each.created_at, each.name))
        return next((each for each in self.workloads if each.name == self.workload_name), None)

    @cached_property
    def spent_workloads(self) -> tuple[WorkloadView, ...]:
        """Workloads of this spec that nothing runs on, and nothing will."""
        prefix, current = names.slice_prefix(self.job), self.workload
        return tuple(
            each
            for each in self.workloads
            if each is not current
            and (each.name.startswith(prefix) or each.name == self.workload_name)
            and not each.holds_quota
        )

    @cached_property
    def pods(self) -> tuple[PodView, ...]:
        """All pods of this very job, of whatever attempt."""
        return tuple(
            pod for pod in self.snapshot.pods.get(self.job.key, ()) if pod.job_uid == self.job.uid
        )

    @property
    def placement(self) -> Placement | None:
        """The placement of the live attempt; None when there is none."""
        return self.status.placement

    @property
    def progress(self) -> Progress | None:
        """What the live attempt has reported; None before its first report."""
        progress, placement = self.status.progress, self.placement
        if progress is None or placement is None or progress.attempt != placement.attempt:
            return None
        return progress

    @cached_property
    def ranks(self) -> dict[tuple[str, int], str]:
        """Node of each (role, rank) of the live attempt, in rank order."""
        if self.placement is None:
            return {}
        return {
            (role, rank): node
            for role, nodes in codec.decode(self.placement).items()
            for rank, node in enumerate(nodes)
        }

    @cached_property
    def incarnations(self) -> dict[tuple[str, int], int]:
        """How often each (role, rank) of the live attempt was replaced, for those that were."""
        try:
            return codec.incarnations(self.placement) if self.placement else {}
        except ValueError:
            return {}  # Somebody has edited it, and the attempt is about to be ended for that.

    @cached_property
    def live_pods(self) -> dict[tuple[str, int], PodView]:
        """Pods of the live attempt by (role, rank), each of its rank's newest incarnation."""
        if self.placement is None:
            return {}
        return {
            (pod.role, pod.rank): pod
            for pod in self.pods
            if pod.attempt == self.placement.attempt
            and pod.incarnation == self.incarnations.get((pod.role, pod.rank), 0)
        }

    @cached_property
    def succeeded(self) -> frozenset[tuple[str, int]]:
        """Ranks of the live attempt that have succeeded, also if their pods are gone since."""
        if self.placement is None:
            return frozenset()
        seen = {rank for rank, pod in self.live_pods.items() if pod.phase == "Succeeded"}
        try:
            return codec.succeeded(self.placement).union(seen)
        except ValueError:  # Somebody has edited it; the attempt is about to be ended for that.
            return frozenset(seen)

    @cached_property
    def stale_pods(self) -> tuple[PodView, ...]:
        """Pods of attempts that are over, and those that were replaced in the live one."""
        live = {pod.uid for pod in self.live_pods.values()}
        return tuple(pod for pod in self.pods if pod.uid not in live)

    @property
    def excluded_nodes(self) -> frozenset[str]:
        """Nodes that are left out for this job for now."""
        stored = self.status.excluded_nodes
        return frozenset(each.node for each in stored if parse_time(each.until) > self.now)

    @property
    def newest_attempt(self) -> int:
        """The newest number that was used, also if somebody has emptied the status: pods tell."""
        return max(self.status.attempt, *(pod.attempt for pod in self.pods), 0)

    @property
    def next_attempt(self) -> int:
        """The next number, above those of pods that a deleted job of the same name has left.

        One of them, stuck on a dead node, would keep a name that this job needs for ever.
        """
        pods = self.snapshot.pods.get(self.job.key, ())
        return 1 + max(self.newest_attempt, *(pod.attempt for pod in pods), 0)

    @cached_property
    def replicas(self) -> int:
        """Size of the gang: of the live attempt; as the spec asks when there is none."""
        return size.total(self.spec, self.placement)

    @property
    def completing_roles(self) -> tuple[Role, ...]:
        """The roles whose completion completes the job."""
        marked = tuple(role for role in self.spec.roles if role.completes_job)
        return marked or self.spec.roles

    def node_of(self, pod: PodView) -> NodeView | None:
        """The node that the pod is bound to, if it is known."""
        return self.snapshot.nodes.get(pod.node) if pod.node else None

    def gone(self, pod: PodView) -> bool:
        """Whether the pod surely no longer uses what quota was given for.

        Ended, or its node is deleted, out of service, or has been silent for so long that waiting
        for its kubelet would hold the quota for ever.
        """
        if pod.terminal:
            return True
        if pod.node is None:
            return False
        node = self.snapshot.nodes.get(pod.node)
        if node is None:
            return True
        if any(taint.key == c.TAINT_OUT_OF_SERVICE for taint in node.taints):
            return True
        silent_since = node.lost_since if node.lost else None
        if silent_since is None or self.now - silent_since <= self.policy.node_gone_seconds:
            return False
        return not (node.unheard and self.cluster_silence)

    @cached_property
    def cluster_silence(self) -> ClusterSilence | None:
        """Set while most of the cluster is silent: then silence does not make a node lost."""
        return find_silence(self.snapshot.nodes.values(), self.now, self.policy)

    @cached_property
    def all_gone(self) -> bool:
        """Whether no pod of the job holds resources any more."""
        return all(self.gone(pod) for pod in self.pods)

    @property
    def recheck_seconds(self) -> float:
        """After how long to look again whether its pods are gone, if no event asks for it before.

        None does when the time is up after which the pods of a silent node count as gone.
        """
        nodes = (self.node_of(pod) for pod in self.pods if not self.gone(pod))
        since = [node.lost_since for node in nodes if node is not None and node.lost]
        left = [each + self.policy.node_gone_seconds - self.now for each in since if each]
        soon = [seconds + A_MOMENT for seconds in left if seconds >= 0]
        return min(self.policy.recheck_seconds, *soon) if soon else self.policy.recheck_seconds
