"""Whatever happens in whatever order, these hold."""

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from goodput_operator.api.status import Phase
from goodput_operator.domain import size
from goodput_operator.domain.model import JobKey
from goodput_operator.domain.placement import codec
from goodput_operator.domain.policy import DEFAULT_POLICY
from tests.unit.domain.world import World, job_spec

NODES = ("n1", "n2", "n3", "n4", "n5")
GANG = 2
OVER = (Phase.COMPLETE, Phase.FAILED)


class Cluster(RuleBasedStateMachine):
    """Jobs on a few nodes; users, nodes, Kueue and clocks do as they please."""

    gang = GANG
    least: int | None = None
    """With how few ranks a job may run; None: with all or none."""

    def __init__(self) -> None:
        super().__init__()
        policy = replace(DEFAULT_POLICY, grow_after_seconds=70.0, grow_room_seconds=15.0)
        self.world = World(quota=4, our_check=True, policy=policy)
        self.world.add_nodes(*NODES)
        self.keys: list[JobKey] = []
        self.over: dict[JobKey, Phase] = {}
        self.attempts: dict[JobKey, int] = {}

    @rule()
    def submit(self) -> None:
        if len(self.keys) < 3:
            spec = job_spec(self.gang, least=self.least, faultTolerance={"maxCrashRestarts": 2})
            self.keys.append(self.world.submit(f"job{len(self.keys)}", spec))

    @rule(pick=st.integers(0, 2))
    def operate(self, pick: int) -> None:
        if pick < len(self.keys):
            self.world.step(self.keys[pick])

    @rule()
    def machines(self) -> None:
        self.world.play()

    @rule(seconds=st.sampled_from([1, 15, 70, 400]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds

    @rule(name=st.sampled_from(NODES))
    def lose_or_heal(self, name: str) -> None:
        if name not in self.world.nodes:
            self.world.add_nodes(name)
        elif self.world.nodes[name].lost:
            self.world.nodes[name] = replace(self.world.nodes[name], ready=True)
        else:
            self.world.lose(name)

    @rule(name=st.sampled_from(NODES), cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        if name in self.world.nodes:
            self.world.cordon(name, cordoned=cordoned)

    @rule(name=st.sampled_from(NODES), condition=st.sampled_from([None, "GPUMissing"]))
    def sicken(self, name: str, condition: str | None) -> None:
        if name in self.world.nodes:
            self.world.sicken(name, condition)

    @rule(name=st.sampled_from(NODES))
    def delete_node(self, name: str) -> None:
        self.world.nodes.pop(name, None)

    @rule(data=st.data(), code=st.sampled_from([0, 0, 1, 137]))
    @precondition(lambda self: any(each.phase == "Running" for each in self.world.pods.values()))
    def exit(self, data: st.DataObject, code: int) -> None:
        running = sorted(n for n, pod in self.world.pods.items() if pod.phase == "Running")
        self.world.exit(data.draw(st.sampled_from(running)), code)

    @rule(data=st.data())
    @precondition(lambda self: self.world.pods)
    def delete_pod(self, data: st.DataObject) -> None:
        del self.world.pods[data.draw(st.sampled_from(sorted(self.world.pods)))]

    @rule(pick=st.integers(0, 2), reason=st.sampled_from(["Preempted", "ClusterQueueStopped"]))
    def evict(self, pick: int, reason: str) -> None:
        if pick < len(self.keys):
            uid = self.world.jobs[self.keys[pick]].uid
            owned = [
                each
                for each in self.world.workloads.values()
                if each.owner_uid == uid and each.holds_quota
            ]
            if owned and not owned[0].is_evicted:
                self.world.evict(self.keys[pick], reason)

    @rule(pick=st.integers(0, 2), suspend=st.booleans())
    def suspend(self, pick: int, suspend: bool) -> None:
        if pick < len(self.keys):
            self.world.edit(self.keys[pick], suspend=suspend)

    @rule()
    def toggle_scheduler(self) -> None:
        self.world.bind = not self.world.bind

    @invariant()
    def terminal_absorbs(self) -> None:
        for key in self.keys:
            status = self.world.job(key)
            if key in self.over:
                assert status.phase == self.over[key]
                assert status.attempt == self.attempts[key]
            elif status.phase in OVER:
                self.over[key] = status.phase

    @invariant()
    def attempts_only_grow_and_pods_belong_to_known_ones(self) -> None:
        for key in self.keys:
            status = self.world.job(key)
            assert status.attempt >= self.attempts.get(key, 0)
            self.attempts[key] = status.attempt
            assert all(
                pod.attempt <= status.attempt
                for pod in self.world.pods.values()
                if pod.job == key.name
            )

    @invariant()
    def no_more_pods_are_created_than_gang_times_attempts(self) -> None:
        for key in self.keys:
            created = [name for name in self.world.created if name.startswith(f"{key.name}-a")]
            assert len(created) <= self.gang * self.world.job(key).attempt

    @invariant()
    def the_gang_is_created_whole_on_its_committed_nodes(self) -> None:
        for key in self.keys:
            placement = self.world.job(key).placement
            if placement is None:
                continue
            nodes = codec.decode(placement)["worker"]
            assert (self.least or self.gang) <= len(nodes) <= self.gang
            for pod in self.world.pods_of(key, placement.attempt):
                assert pod.pinned_node == nodes[pod.rank]

    @invariant()
    def no_two_live_ranks_are_planned_for_one_gpu(self) -> None:
        planned = [
            node
            for key in self.keys
            if (placement := self.world.job(key).placement) is not None
            for node in codec.decode(placement)["worker"]
        ]
        assert len(planned) == len(set(planned))

    @invariant()
    def one_workload_a_job_holds_quota_and_quota_is_never_exceeded(self) -> None:
        """Beside it there may be one that asks for more, or has just handed its quota over."""
        owners = [each.owner_uid for each in self.world.workloads.values() if each.holds_quota]
        assert len(owners) == len(set(owners))
        if self.least is None:
            assert len(self.world.workloads) <= len(self.keys)
        assert self.world.used() <= self.world.quota

    @invariant()
    def live_pods_run_on_quota(self) -> None:
        """An attempt with pods belongs to a job that has a Workload."""
        for key in self.keys:
            status = self.world.job(key)
            if status.placement is None or status.placement.created_at is None:
                continue
            uid = self.world.jobs[key].uid
            owned = [each for each in self.world.workloads.values() if each.owner_uid == uid]
            assert owned, "an attempt is live without a Workload"

    @invariant()
    def no_more_ranks_are_placed_than_there_is_quota_for(self) -> None:
        for key in self.keys:
            job = self.world.jobs[key]
            assert job.spec is not None
            for workload in self.world.workloads.values():
                if workload.owner_uid == job.uid and workload.holds_quota and job.status.placement:
                    granted = size.granted(job.spec, workload)
                    assert (
                        size.placed(job.spec, job.status.placement)["worker"] <= granted["worker"]
                    )

    def teardown(self) -> None:
        """Left alone with healthy nodes, every job that is not suspended ends up running."""
        self.world.bind = True
        self.world.quota = 100
        for name in (*NODES, "n6", "n7", "n8"):
            self.world.nodes.pop(name, None)
            self.world.add_nodes(name)
        for _ in range(40):
            for key in self.keys:
                self.world.step(key)
            self.world.play()
            self.world.now += 30
        for key in self.keys:
            status = self.world.job(key)
            resting = {Phase.RUNNING, Phase.SUSPENDED, *OVER}
            assert status.phase in resting, (status.phase, status.reason, self.world.writes[-8:])
        running = [key for key in self.keys if self.world.job(key).phase is Phase.RUNNING]
        ranks = sum(len(self.world.pods_of(key)) for key in running)
        assert self.world.used() == ranks, "quota is held for the ranks that there are"


class ElasticCluster(Cluster):
    """The same with jobs of three ranks that can run with two."""

    gang, least = 3, 2


Cluster.TestCase.settings = ElasticCluster.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCluster = Cluster.TestCase
TestElasticCluster = ElasticCluster.TestCase
