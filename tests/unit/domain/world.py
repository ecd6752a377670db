"""A world of views in memory: it executes plans as the executor would, and plays Kueue's part.

It is what the pure core is tested against; the real API server and Kueue are the integration
tests' part. Time moves only when a test says so.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import DurableCheckpoint, Progress, TrainingJobStatus
from goodput_operator.api.times import format_micro_time
from goodput_operator.domain import plan as p
from goodput_operator.domain import size
from goodput_operator.domain.heard import GangReports, Heard, RankReports
from goodput_operator.domain.model import (
    BadCondition,
    CheckState,
    ContainerExit,
    JobKey,
    JobView,
    NodeHealthView,
    NodeView,
    PodSetAssignment,
    PodView,
    Refusal,
    Snapshot,
    WorkloadCondition,
    WorkloadView,
)
from goodput_operator.domain.names import pod_name
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy
from goodput_operator.domain.reconcile import decide
from goodput_operator.domain.resources import Resources, pod_requests
from goodput_operator.domain.storage import ClaimView, VolumeView

GPU = "nvidia.com/gpu"


def template(gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A pod template that asks for some GPUs."""
    container = {"name": "main", "image": "trainer", "resources": {"limits": {GPU: str(gpus)}}}
    return {"spec": {"containers": [container], **spec}}


def job_spec(
    replicas: int = 2, gpus: int = 1, least: int | None = None, **spec: Any
) -> TrainingJobSpec:
    """A job of one role, ``worker``, which may run with ``least`` ranks."""
    role = {"name": "worker", "replicas": replicas, "template": template(gpus)}
    roles = [role if least is None else {**role, "minReplicas": least}]
    return TrainingJobSpec.model_validate({"roles": roles, **spec})


def node(name: str, gpus: int = 1, **fields: Any) -> NodeView:
    """A ready node with some GPUs."""
    values: dict[str, Any] = {
        "labels": {},
        "taints": (),
        "unschedulable": False,
        "ready": True,
        "ready_since": 0.0,
        "ready_message": "",
        "heartbeat_at": None,
        "uid": f"uid-{name}",
        "allocatable": Resources.parse({GPU: gpus, "pods": 110, "cpu": "64", "memory": "1Ti"}),
    }
    return NodeView(name=name, **{**values, **fields})


@dataclass
class World:
    """Nodes, jobs and what they own; Kueue with so many GPUs of quota."""

    quota: int = 1000
    our_check: bool = False
    now: float = 1_000_000.0
    policy: Policy = DEFAULT_POLICY
    nodes: dict[str, NodeView] = field(default_factory=dict)
    jobs: dict[JobKey, JobView] = field(default_factory=dict)
    workloads: dict[str, WorkloadView] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    foreign: dict[str, Resources] = field(default_factory=dict)
    claims: dict[tuple[str, str], ClaimView] = field(default_factory=dict)
    volumes: dict[str, VolumeView] = field(default_factory=dict)
    health: dict[str, NodeHealthView] = field(default_factory=dict)
    events: list[tuple[JobKey, p.JobEvent]] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    writes: list[str] = field(default_factory=list)
    bind: bool = True
    """Whether kube-scheduler binds pods where they are pinned."""
    refused: dict[JobKey, str] = field(default_factory=dict)
    """Jobs of whose pods the API server takes the first rank only, and what it says."""
    errors: dict[JobKey, Refusal] = field(default_factory=dict)
    heard: Heard | None = None
    """What the ranks report, each for itself."""
    slices: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Workloads that ask for more: which one they replace, and with how many ranks at least."""
    stop_after: int | None = None
    """Kill the operator after so many more writes."""
    _version: int = 0

    # What users and machines do

    def add_claim(self, name: str, *modes: str, **fields: Any) -> None:
        values: dict[str, Any] = {"phase": "Bound", "volume": f"pv-{name}", **fields}
        self.claims["team", name] = ClaimView("team", name, access_modes=frozenset(modes), **values)

    def add_nodes(self, *names: str, gpus: int = 1) -> None:
        for name in names:
            self.nodes[name] = node(name, gpus)

    def submit(
        self, name: str = "job", spec: TrainingJobSpec | None = None, **labels: str
    ) -> JobKey:
        key = JobKey("team", name)
        self.jobs[key] = JobView(
            key=key,
            uid=f"uid-{name}",
            resource_version=self._next(),
            generation=1,
            created_at=self.now,
            deleting=False,
            labels={c.LABEL_QUEUE: "queue", **labels},
            spec=spec or job_spec(),
            status=TrainingJobStatus(),
        )
        return key

    def edit(self, key: JobKey, **fields: Any) -> None:
        job = self.jobs[key]
        assert job.spec is not None
        self.jobs[key] = replace(
            job, spec=job.spec.model_copy(update=fields), generation=job.generation + 1
        )

    def lose(self, name: str) -> None:
        self.nodes[name] = replace(self.nodes[name], ready=False, ready_since=self.now)

    def cordon(self, *names: str, cordoned: bool = True) -> None:
        for name in names:
            self.nodes[name] = replace(self.nodes[name], unschedulable=cordoned)

    def sicken(self, name: str, condition: str | None = "GPUMissing") -> None:
        """Give a node a bad condition, or take it away."""
        bad = BadCondition(condition, "it is broken") if condition else None
        self.nodes[name] = replace(self.nodes[name], bad=bad)

    def evict_pod(self, name: str) -> None:
        """By the Eviction API."""
        pod = self.pods[name]
        self._set_pod(replace(pod, disruption="EvictionByEvictionAPI", deleting=True))

    def exit(self, name: str, code: int, message: str = "") -> None:
        done = ContainerExit("main", code, "Error" if code else "Completed", message, self.now)
        phase = "Failed" if code else "Succeeded"
        self.pods[name] = replace(self.pods[name], phase=phase, ready=False, exits=(done,))

    def finish(self, key: JobKey) -> None:
        for pod in self.pods_of(key):
            self.exit(pod.name, 0)

    def report(self, key: JobKey, step: int, durable: int, resumed_from: int | None = None) -> None:
        status, now = self.jobs[key].status, format_micro_time(self.now)
        self._status(
            key,
            status.model_copy(
                update={
                    "progress": Progress(
                        attempt=status.attempt,
                        step=step,
                        reported_at=now,
                        first_step_at=now,
                        resumed_from_step=resumed_from,
                    ),
                    "checkpoint": DurableCheckpoint(
                        step=durable, attempt=status.attempt, saved_at=now
                    ),
                }
            ),
        )

    def listen(self) -> None:
        """The operator begins to listen for reports, with nothing in memory."""
        self.heard = Heard(self.now)

    def step_to(self, key: JobKey, *steps: int) -> None:
        """Each rank of the first role reports a step; the status has the highest as well."""
        assert self.heard is not None
        status, uid = self.jobs[key].status, self.jobs[key].uid
        before = self.heard.gangs.get(uid)
        same = before is not None and before.attempt == status.attempt
        ranks = dict(before.ranks) if before is not None and same else {}
        for rank, step in enumerate(steps):
            known = ranks.get(("worker", rank))
            if known is None or step > known.step:
                ranks["worker", rank] = RankReports(step, self.now)
        first = before.first_step if before is not None and same else min(steps)
        gang = GangReports(status.attempt, first, ranks)
        self.heard = Heard(self.heard.since, {**self.heard.gangs, uid: gang})

    def evict(self, key: JobKey, reason: str) -> None:
        workload = self.workload(key)
        condition = WorkloadCondition(True, reason, f"evicted: {reason}", self.now)
        self._put(replace(workload, evicted=condition))

    # What the operator does

    def run(self, key: JobKey, rounds: int = 30) -> None:
        """Decide and execute until nothing changes any more."""
        for _ in range(rounds):
            before = self._version
            self.step(key)
            self.play()
            if self._version == before:
                return
        raise AssertionError(f"no rest after {rounds} rounds: {self.writes[-12:]}")

    def step(self, key: JobKey) -> p.Plan:
        plan = decide(self.snapshot(), key, self.now, self.policy)
        self.execute(key, plan)
        return plan

    def execute(self, key: JobKey, plan: p.Plan) -> None:
        for action in plan.actions:
            if isinstance(action, p.CreatePod) and action.rank and key in self.refused:
                self.errors[key] = Refusal(self.refused[key])
                return
            self._write(type(action).__name__)
            self._act(key, action)
        if not plan.commit:
            self.errors.pop(key, None)
        if plan.status is not None and key in self.jobs:
            self._write("Status")
            self._status(key, plan.status)
        for event in plan.events:
            seen = ((each.reason, each.key) for owner, each in self.events if owner == key)
            if (event.reason, event.key) not in seen:
                self.events.append((key, event))

    def snapshot(self) -> Snapshot:
        by_workload: dict[JobKey, tuple[WorkloadView, ...]] = {}
        for workload in self.workloads.values():
            key = self._owner(workload.owner_uid)
            by_workload[key] = (*by_workload.get(key, ()), workload)
        by_pod: dict[JobKey, tuple[PodView, ...]] = {}
        for pod in self.pods.values():
            key = JobKey(pod.namespace, pod.job)
            by_pod[key] = (*by_pod.get(key, ()), pod)
        return Snapshot(
            self.jobs,
            by_workload,
            by_pod,
            self.nodes,
            self.foreign,
            claims=self.claims,
            volumes=self.volumes,
            errors=self.errors,
            health=self.health,
            heard=self.heard,
        )

    def play(self) -> None:
        """One round of Kueue, kube-scheduler and the kubelets."""
        self._kueue()
        for pod in list(self.pods.values()):
            host = self.nodes.get(pod.node or pod.pinned_node or "")
            alive = host is not None and not host.lost
            if pod.deleting and (pod.node is None or alive):
                del self.pods[pod.name]
                self._next()
            elif pod.node is None and self.bind and alive:
                self._set_pod(replace(pod, node=pod.pinned_node, phase="Running", ready=True))

    # Questions

    def job(self, key: JobKey) -> TrainingJobStatus:
        return self.jobs[key].status

    def workload(self, key: JobKey) -> WorkloadView:
        """The one that holds quota, or is to."""
        owned = [
            each
            for each in self.workloads.values()
            if each.owner_uid == self.jobs[key].uid
            and not (each.name in self.slices and not each.has_admission)
            and not (each.finished and each.finished.reason == "WorkloadSliceReplaced")
        ]
        assert len(owned) == 1, owned
        return owned[0]

    def pods_of(self, key: JobKey, attempt: int | None = None) -> list[PodView]:
        wanted = attempt or self.job(key).attempt
        return sorted(
            (pod for pod in self.pods.values() if pod.job == key.name and pod.attempt == wanted),
            key=lambda pod: (pod.role, pod.rank),
        )

    def reasons(self, key: JobKey) -> list[str]:
        return [event.reason for owner, event in self.events if owner == key]

    # How it works

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _write(self, what: str) -> None:
        if self.stop_after is not None:
            if self.stop_after == 0:
                raise OperatorKilledError(what)
            self.stop_after -= 1
        self.writes.append(what)

    def _owner(self, uid: str) -> JobKey:
        return next(
            (key for key, job in self.jobs.items() if job.uid == uid), JobKey("team", "nobody")
        )

    def _status(self, key: JobKey, status: TrainingJobStatus) -> None:
        if status != self.jobs[key].status:
            self.jobs[key] = replace(self.jobs[key], status=status, resource_version=self._next())

    def _put(self, workload: WorkloadView) -> None:
        if self.workloads.get(workload.name) != workload:
            self.workloads[workload.name] = replace(workload, resource_version=self._next())

    def _set_pod(self, pod: PodView) -> None:
        self.pods[pod.name] = replace(pod, resource_version=self._next())

    def _act(self, key: JobKey, action: p.Action) -> None:
        match action:
            case p.CreateWorkload(name, replaces, least):
                self._create_workload(key, name)
                if replaces is not None:
                    assert least is not None
                    self.slices[name] = (replaces, least)
            case p.SetWorkloadActive(name, active):
                self._put(
                    replace(self.workloads[name], active=active, deactivated_by_us=not active)
                )
            case p.DeleteWorkload(name):
                del self.workloads[name]
                self._next()
            case p.CreatePod():
                self._create_pod(self.jobs[key], action)
            case p.DeletePod():
                self._delete_pod(action)
            case p.DeleteJob():
                del self.jobs[key]
                self._next()
            case p.EnsureService():
                pass
            case p.SetNodeHealth():
                self._set_health(action)
            case _:
                self._workload_status(action)

    def _workload_status(self, action: p.Action) -> None:
        match action:
            case p.AnswerChecks(name, version, checks, state, message):
                workload = self._guarded(name, version)
                answered = tuple(
                    replace(each, state=state, message=message) if each.name in checks else each
                    for each in workload.checks
                )
                self._put(replace(workload, checks=answered))
            case p.SetPodsReady(name, version, ready, message):
                ready_now = WorkloadCondition(ready, "PodsReady", message, self.now)
                self._put(replace(self._guarded(name, version), pods_ready=ready_now))
            case p.ReclaimPods(name, version, counts):
                held = self._guarded(name, version)
                assert held.has_admission
                assert all(count >= held.reclaimable.get(role, 0) for role, count in counts)
                self._put(replace(held, reclaimable={**held.reclaimable, **dict(counts)}))
            case p.ReleaseQuota(name, version, requeued, reason, message):
                self._release(name, version, WorkloadCondition(requeued, reason, message, self.now))
            case p.FinishWorkload(name, version, _, message):
                finished = WorkloadCondition(True, "Succeeded", message, self.now)
                self._put(replace(self._guarded(name, version), finished=finished))

    def _set_health(self, action: p.SetNodeHealth) -> None:
        known = self.health.get(action.node)
        assert (known.resource_version if known else None) == action.resource_version
        self.health[action.node] = NodeHealthView(
            action.node, f"uid-nh-{action.node}", self._next(), action.status
        )

    def _delete_pod(self, action: p.DeletePod) -> None:
        pod = self.pods.get(action.name)
        if pod is None or pod.uid != action.uid:
            return
        if pod.terminal:
            del self.pods[pod.name]
        else:
            self._set_pod(replace(pod, deleting=True))
        self._next()

    def _guarded(self, name: str, version: str) -> WorkloadView:
        workload = self.workloads[name]
        assert workload.resource_version == version, "written from a stale view"
        return workload

    def _release(self, name: str, version: str, requeued: WorkloadCondition) -> None:
        workload = self._guarded(name, version)
        assert workload.is_evicted, "released before it was evicted"
        assert workload.has_admission
        checks = tuple(replace(each, state="Pending") for each in workload.checks)
        self._put(
            replace(
                workload,
                has_admission=False,
                quota_reserved=None,
                admitted=None,
                assignments=(),
                reclaimable={},
                checks=checks,
                requeued=requeued,
            )
        )

    def _create_workload(self, key: JobKey, name: str) -> None:
        if name in self.workloads:
            return
        check = (CheckState("power", "Pending", "", True),) if self.our_check else ()
        self._put(
            WorkloadView(
                name=name,
                namespace=key.namespace,
                uid=f"uid-{name}",
                resource_version="",
                owner_uid=self.jobs[key].uid,
                queue=self.jobs[key].queue or "",
                active=True,
                deleting=False,
                created_at=self.now,
                quota_reserved=None,
                admitted=None,
                evicted=None,
                finished=None,
                pods_ready=None,
                requeued=None,
                has_admission=False,
                checks=check,
                assignments=(),
            )
        )

    def _create_pod(self, job: JobView, action: p.CreatePod) -> None:
        assert job.spec is not None
        name = pod_name(job.key.name, action.attempt, action.role, action.rank, action.incarnation)
        if name in self.pods:
            return
        assert self.created[name] == 0, f"{name} was created twice"
        self.created[name] += 1
        role = next(each for each in job.spec.roles if each.name == action.role)
        self._set_pod(
            PodView(
                name=name,
                namespace=job.key.namespace,
                uid=f"uid-{name}",
                resource_version="",
                job=job.key.name,
                job_uid=job.uid,
                attempt=action.attempt,
                role=action.role,
                rank=action.rank,
                created_at=self.now,
                deleting=False,
                phase="Pending",
                ready=False,
                node=None,
                pinned_node=action.node,
                requests=pod_requests(role.template["spec"]),
                status_reason="",
                status_message="",
                disruption=None,
                unschedulable_message=None,
                waiting=None,
                incarnation=action.incarnation,
            )
        )

    def _kueue(self) -> None:
        for workload in list(self.workloads.values()):
            if not workload.active and workload.has_admission and not workload.is_evicted:
                off = WorkloadCondition(True, "Deactivated", "it is not active", self.now)
                self._put(replace(workload, evicted=off))
            elif workload.active and not workload.has_admission and not workload.is_finished:
                self._reserve(workload)
            elif workload.has_admission and not workload.is_evicted and not workload.admitted:
                self._admit(workload)

    def _admit(self, workload: WorkloadView) -> None:
        if all(check.state == "Ready" for check in workload.checks):
            yes = WorkloadCondition(True, "Admitted", "admitted", self.now)
            self._put(replace(workload, admitted=yes))

    def _reserve(self, workload: WorkloadView) -> None:
        job = self.jobs[self._owner(workload.owner_uid)]
        assert job.spec is not None
        replaced, least = self._replaced(workload)
        counts = self._admissible(job.spec, replaced, least)
        if counts is None:
            return
        self._put(
            replace(
                workload,
                has_admission=True,
                evicted=None,
                quota_reserved=WorkloadCondition(True, "QuotaReserved", "", self.now),
                assignments=tuple(
                    PodSetAssignment(role, count, {}, ()) for role, count in counts.items()
                ),
            )
        )
        if replaced is not None:
            over = WorkloadCondition(True, "WorkloadSliceReplaced", "replaced", self.now)
            self._put(replace(replaced, finished=over))

    def _replaced(self, workload: WorkloadView) -> tuple[WorkloadView | None, int | None]:
        """What a slice takes over: Kueue takes one without for any other Workload."""
        name, least = self.slices.get(workload.name, (None, None))
        found = self.workloads.get(name) if name else None
        return (found if found and found.holds_quota else None), least

    def _admissible(
        self, spec: TrainingJobSpec, replaced: WorkloadView | None, least: int | None
    ) -> dict[str, int] | None:
        """The most ranks by role that there is quota for: Kueue's partial admission."""
        left = self.quota - self.used() + (self._gpus(replaced) if replaced else 0)
        elastic = size.elastic_role(spec)
        steps = elastic.replicas - (least or size.least(elastic)) if elastic else 0
        for fewer in range(steps + 1):
            counts = dict(size.asked(spec))
            if elastic:
                counts[elastic.name] -= fewer
            if _gpus(spec, counts) <= left:
                return counts
        return None

    def used(self) -> int:
        """GPUs of quota in use."""
        return sum(self._gpus(each) for each in self.workloads.values() if each.holds_quota)

    def _gpus(self, workload: WorkloadView) -> int:
        job = self.jobs.get(self._owner(workload.owner_uid))
        if job is None or job.spec is None:
            return 0
        return _gpus(job.spec, size.granted(job.spec, workload))


def _gpus(spec: TrainingJobSpec, counts: Mapping[str, int]) -> int:
    return sum(
        counts[role.name] * pod_requests(role.template["spec"]).get(GPU) // 1000
        for role in spec.roles
    )


class OperatorKilledError(Exception):
    """The operator was killed before this write."""
