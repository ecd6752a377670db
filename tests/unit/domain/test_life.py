"""The life of a job, told step by step: what a user would see."""

from dataclasses import replace

import pytest

from goodput_operator import constants as c
from goodput_operator.api.status import Cause, Outcome, Phase, Restarts
from goodput_operator.domain.model import Taint
from goodput_operator.domain.resources import Resources
from tests.unit.domain.world import GPU, World, job_spec, template


@pytest.fixture(params=[False, True], ids=["plain queue", "queue with our check"])
def world(request: pytest.FixtureRequest) -> World:
    made = World(our_check=request.param)
    made.add_nodes("n1", "n2", "n3")
    return made


def conditions(world: World, key) -> dict[str, str]:
    return {each.type: each.status for each in world.job(key).conditions}


def test_a_job_is_queued_admitted_placed_and_runs(world: World) -> None:
    key = world.submit()
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.ready, status.attempt) == (Phase.RUNNING, "2/2", 1)
    assert conditions(world, key) == {"Admitted": "True", "Running": "True"}
    assert len({pod.node for pod in world.pods_of(key)}) == 2
    assert world.reasons(key) == ["Queued", "GangPlaced", "Admitted", "GangStarted"]
    assert world.workload(key).pods_ready is not None


def test_a_job_without_a_queue_says_which_label_is_missing(world: World) -> None:
    key = world.submit(**{c.LABEL_QUEUE: ""})
    world.run(key)
    assert world.job(key).reason == c.Reason.QUEUE_MISSING
    assert not world.workloads
    world.jobs[key] = replace(world.jobs[key], labels={c.LABEL_QUEUE: "queue"})
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_completion_frees_the_quota_and_absorbs(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.finish(key)
    world.run(key)
    assert (world.job(key).phase, world.job(key).ready) == (Phase.COMPLETE, "2/2")
    assert world.used() == 0
    assert conditions(world, key) == {"Admitted": "False", "Running": "False", "Complete": "True"}
    for name in list(world.pods):
        del world.pods[name]
    del world.workloads[world.workload(key).name]
    world.run(key)
    assert (world.job(key).phase, world.pods, world.workloads) == (Phase.COMPLETE, {}, {})


def test_the_completing_role_completes_the_job_and_the_rest_is_stopped(world: World) -> None:
    base = job_spec().model_dump(by_alias=True)["roles"][0]
    roles = [
        {**base, "name": "chief", "replicas": 1, "completesJob": True},
        {**base, "name": "helper", "replicas": 2},
    ]
    key = world.submit(spec=job_spec().model_validate({"roles": roles}))
    world.run(key)
    world.exit("job-a1-helper-0", 0)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    world.exit("job-a1-chief-0", 0)
    world.run(key)
    assert world.job(key).phase == Phase.COMPLETE
    assert all(pod.terminal for pod in world.pods.values())


def test_a_lost_node_restarts_the_gang_elsewhere_without_waiting_for_the_dead(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.report(key, step=137, durable=120)
    reserved = world.workload(key).uid
    dead = world.pods_of(key)[0].node
    world.lose(dead)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt) == (Phase.RUNNING, 2)
    assert status.restarts == Restarts(infrastructure=1)
    assert dead not in status.placement.nodes
    assert status.placement.resume_step == 120
    assert world.workload(key).uid == reserved
    record = status.attempts[-1]
    assert (record.outcome, record.cause) == (Outcome.INFRASTRUCTURE_LOST, Cause.INFRASTRUCTURE)
    assert (record.lost_nodes, record.last_step) == ((dead,), 137)
    assert "job-a1-worker-0" in world.pods  # stuck on the dead node, and in nobody's way
    world.report(key, step=121, durable=120, resumed_from=120)
    world.run(key)
    assert world.reasons(key)[4:] == ["NodeLost", "Restarting", "GangStarted", "Resumed"]


@pytest.mark.parametrize(
    "how",
    [
        lambda node: replace(node, ready=False),
        lambda node: replace(node, taints=(Taint(c.TAINT_UNREACHABLE, "", "NoExecute"),)),
        lambda node: replace(node, taints=(Taint(c.TAINT_OUT_OF_SERVICE, "", "NoExecute"),)),
        lambda node: None,
    ],
    ids=["not ready", "unreachable", "out of service", "deleted"],
)
def test_every_way_of_losing_a_node_is_infrastructure(world: World, how) -> None:
    key = world.submit()
    world.run(key)
    name = world.pods_of(key)[0].node
    lost = how(world.nodes.pop(name))
    if lost is not None:
        world.nodes[name] = lost
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.restarts.crash, status.restarts.infrastructure) == (2, 0, 1)


def test_two_nodes_lost_at_once_are_one_restart(world: World) -> None:
    world.add_nodes("n4", "n5")
    key = world.submit()
    world.run(key)
    for pod in world.pods_of(key):
        world.lose(pod.node)
    world.run(key)
    assert (world.job(key).attempt, world.job(key).restarts.infrastructure) == (2, 1)


def test_peers_that_crash_before_the_node_is_known_lost_cost_no_crash(world: World) -> None:
    key = world.submit(spec=job_spec(faultTolerance={"maxCrashRestarts": 0}))
    world.run(key)
    dead, survivor = world.pods_of(key)
    world.exit(survivor.name, 1, "connection reset by peer")
    world.run(key)
    assert world.job(key).phase == Phase.RESTARTING  # the verdict waits
    world.now += 20
    world.lose(dead.node)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.attempt) == (Phase.RUNNING, 2)
    assert status.restarts == Restarts(infrastructure=1)


def test_a_crash_backs_off_then_restarts_then_fails_with_its_evidence(world: World) -> None:
    key = world.submit(spec=job_spec(faultTolerance={"maxCrashRestarts": 1}))
    world.run(key)
    world.exit("job-a1-worker-1", 7, "Traceback\nValueError: bad batch\n")
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.RESTARTING, "BackingOff")
    world.now += 10
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)
    world.exit("job-a2-worker-1", 7, "Traceback\nValueError: bad batch\n")
    world.run(key)
    world.now += world.policy.attribution_seconds + 1
    world.run(key)
    status = world.job(key)
    assert status.phase == Phase.FAILED
    message = next(each.message for each in status.conditions if each.type == "Failed")
    for part in ("maxCrashRestarts of 1", "worker-1", "on node n", "code 7", "bad batch"):
        assert part in message
    assert world.used() == 0
    assert not [pod for pod in world.pods.values() if not pod.terminal]


def test_a_crash_on_nodes_that_are_alive_after_it_is_final_at_once(world: World) -> None:
    key = world.submit(spec=job_spec(faultTolerance={"maxCrashRestarts": 0}))
    world.run(key)
    world.exit("job-a1-worker-1", 1)
    world.run(key)
    world.now += 3
    for name in world.nodes:
        world.nodes[name] = replace(world.nodes[name], heartbeat_at=world.now)
    world.run(key)
    assert world.job(key).phase == Phase.FAILED


def test_a_pod_deleted_by_somebody_is_infrastructure(world: World) -> None:
    key = world.submit()
    world.run(key)
    del world.pods["job-a1-worker-1"]
    world.run(key)
    assert world.job(key).restarts == Restarts(infrastructure=1)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)


def test_the_infrastructure_budget_ends_the_job(world: World) -> None:
    key = world.submit(spec=job_spec(faultTolerance={"maxInfrastructureRestarts": 0}))
    world.run(key)
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (
        Phase.FAILED,
        c.Reason.INFRASTRUCTURE_BUDGET_EXHAUSTED,
    )


def test_suspend_and_resume_ten_times(world: World) -> None:
    key = world.submit()
    world.run(key)
    for _ in range(10):
        world.edit(key, suspend=True)
        world.run(key)
        assert (world.job(key).phase, world.used(), world.pods) == (Phase.SUSPENDED, 0, {})
        world.edit(key, suspend=False)
        world.run(key)
        assert world.job(key).phase == Phase.RUNNING
    status = world.job(key)
    assert status.attempt == 11
    assert status.restarts == Restarts()
    assert len(world.workloads) == 1


def test_a_job_born_suspended_makes_nothing_until_it_is_resumed(world: World) -> None:
    key = world.submit(spec=job_spec(suspend=True))
    world.run(key)
    assert (world.job(key).phase, world.workloads) == (Phase.SUSPENDED, {})
    world.edit(key, suspend=False)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_five_preemptions_are_no_crash_and_quota_waits_for_the_pods(world: World) -> None:
    key = world.submit()
    world.run(key)
    for _ in range(5):
        world.evict(key, "Preempted")
        for _ in range(3):  # the pods are still stopping: no play of the kubelets
            world.step(key)
            assert world.workload(key).has_admission
        assert all(pod.deleting for pod in world.pods.values())
        world.run(key)
        assert world.job(key).phase == Phase.RUNNING
    status = world.job(key)
    assert status.restarts == Restarts(preemption=5)
    assert world.workload(key).requeued.status


def test_somebody_elses_deactivation_is_explained_not_undone(world: World) -> None:
    key = world.submit()
    world.run(key)
    workload = world.workload(key)
    world.workloads[workload.name] = replace(workload, active=False)
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.PENDING, c.Reason.DEACTIVATED)
    assert (world.used(), world.pods) == (0, {})


def test_no_room_gives_the_quota_back_and_queues_again(world: World) -> None:
    del world.nodes["n3"]
    key = world.submit()
    world.run(key)
    world.lose("n1")
    world.run(key)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES
    world.now += world.policy.hold_seconds
    world.run(key)
    assert world.used() == 2  # the dead node has not been silent for long enough
    world.now += 1
    world.run(key)
    assert world.used() == 0
    assert world.job(key).phase == Phase.PENDING
    world.add_nodes("n4")
    world.now += 60
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)
    assert "QuotaReleased" in world.reasons(key)


def test_a_gang_that_cannot_bind_is_withdrawn_whole_and_in_the_end_given_back(world: World) -> None:
    world.bind = False
    key = world.submit()
    for _ in range(40):
        world.run(key)
        world.now += 30
        live = [pod for pod in world.pods.values() if not pod.deleting]
        assert len(live) in (0, 2)
        if world.used() == 0:
            break
    assert world.used() == 0
    assert world.job(key).reason in (c.Reason.UNSCHEDULABLE, c.Reason.WAITING_FOR_NODES)
    assert world.job(key).restarts.crash == 0


def test_a_node_that_did_not_bind_is_left_out_of_the_next_placement(world: World) -> None:
    world.bind = False
    key = world.submit(spec=job_spec(replicas=1))
    world.run(key)
    (pod,) = world.pods_of(key)
    tried = pod.pinned_node
    world.pods[pod.name] = replace(pod, unschedulable_message="0/4 nodes are available")
    world.now += world.policy.bind_seconds
    world.run(key)
    world.now += world.policy.requeue_base_seconds
    world.bind = True
    world.run(key)
    assert world.pods_of(key, 2)[0].node != tried


def test_a_pod_that_kube_scheduler_says_nothing_about_is_waited_for_longer(world: World) -> None:
    """It is away, or catches up after the API server was: no node is to blame."""
    world.bind = False
    key = world.submit()
    world.run(key)
    world.now += 4.9 * world.policy.bind_seconds
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.STARTING, 1)
    world.now += 0.2 * world.policy.bind_seconds
    world.run(key)
    status = world.job(key)
    assert status.placement is None
    assert status.attempts[-1].outcome == Outcome.UNSCHEDULABLE
    assert "schedulerName" in status.attempts[-1].message
    assert status.excluded_nodes == ()


def test_two_gangs_with_room_for_one_run_one_after_the_other(world: World) -> None:
    first, second = world.submit("first"), world.submit("second")
    for _ in range(10):
        for key in (first, second):
            world.step(key)
        world.play()
        per_job = [len(world.pods_of(key)) for key in (first, second)]
        assert sorted(per_job) in ([0, 0], [0, 2])
    running = [key for key in (first, second) if world.job(key).phase == Phase.RUNNING]
    assert len(running) == 1
    other = second if running == [first] else first
    world.finish(running[0])
    world.run(running[0])
    world.now += 120
    world.run(other)
    assert world.job(other).phase == Phase.RUNNING


def test_foreign_pods_take_room(world: World) -> None:
    world.foreign["n1"] = Resources.parse({GPU: 1})
    world.foreign["n2"] = Resources.parse({GPU: 1})
    key = world.submit()
    world.run(key)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES
    assert not world.pods


def test_the_deadline_counts_running_time_only(world: World) -> None:
    key = world.submit(spec=job_spec(activeDeadlineSeconds=100))
    world.run(key)
    world.now += 60
    world.edit(key, suspend=True)
    world.run(key)
    world.now += 1000
    world.edit(key, suspend=False)
    world.run(key)
    world.now += 39
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    world.now += 2
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (
        Phase.FAILED,
        c.Reason.DEADLINE_EXCEEDED,
    )


def test_the_ttl_deletes_the_job_when_it_is_over(world: World) -> None:
    key = world.submit(spec=job_spec(ttlSecondsAfterFinished=50))
    world.run(key)
    world.finish(key)
    world.run(key)
    assert key in world.jobs
    world.now += 51
    world.run(key)
    assert key not in world.jobs


def test_changed_roles_while_suspended_are_another_workload(world: World) -> None:
    key = world.submit()
    world.run(key)
    before = world.workload(key).name
    world.edit(key, suspend=True)
    world.run(key)
    world.edit(key, suspend=False, roles=job_spec(replicas=3).roles)
    world.run(key)
    assert world.job(key).ready == "3/3"
    assert world.workload(key).name != before


def test_a_deleted_workload_stops_the_job_and_is_made_again(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.workloads.clear()
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)
    assert world.job(key).restarts.crash == 0


def test_a_job_being_deleted_starts_nothing(world: World) -> None:
    key = world.submit()
    world.jobs[key] = replace(world.jobs[key], deleting=True)
    world.run(key)
    assert not world.workloads


@pytest.mark.parametrize(
    "part",
    [{"tolerations": "all"}, {"overhead": {"cpu": "much"}}, {"affinity": 7}],
    ids=["toleration", "overhead", "affinity"],
)
def test_a_malformed_template_is_a_condition_and_no_crash(world: World, part: dict) -> None:
    role = {"name": "worker", "template": template(**part)}
    key = world.submit(spec=job_spec().model_validate({"roles": [role]}))
    other = world.submit("other")
    world.run(key)
    assert world.job(key).reason == c.Reason.INVALID_SPEC
    assert next(iter(part)) in world.job(key).conditions[0].message
    world.run(other)
    assert world.job(other).phase == Phase.RUNNING


def test_a_rank_that_is_not_ready_for_a_while_is_no_restart(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.pods["job-a1-worker-0"] = replace(world.pods["job-a1-worker-0"], ready=False)
    world.run(key)
    status = world.job(key)
    assert (status.phase, status.reason, status.ready) == (Phase.RUNNING, "RanksNotReady", "1/2")
    assert conditions(world, key)["Running"] == "False"
    assert status.attempt == 1


def test_a_rank_whose_containers_are_done_counts_as_ready(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.exit("job-a1-worker-0", 0)
    world.pods["job-a1-worker-0"] = replace(world.pods["job-a1-worker-0"], phase="Running")
    world.run(key)
    assert (world.job(key).phase, world.job(key).ready) == (Phase.RUNNING, "2/2")


def test_a_crash_is_put_down_to_a_node_lost_after_the_next_attempt_has_begun(world: World) -> None:
    key = world.submit(spec=job_spec(faultTolerance={"maxCrashRestarts": 1}))
    world.run(key)
    dead, survivor = world.pods_of(key)
    world.exit(survivor.name, 1, "connection reset by peer")
    world.run(key)
    world.bind = False  # nothing runs on the dead node
    world.now += 10
    world.run(key)
    assert (world.job(key).attempt, world.job(key).restarts.crash) == (2, 1)
    world.now += 30
    world.lose(dead.node)
    world.bind = True
    world.run(key)
    status = world.job(key)
    assert status.restarts.crash == 0
    assert status.restarts.infrastructure >= 1
    assert status.attempts[0].cause == Cause.INFRASTRUCTURE
    assert status.phase == Phase.RUNNING


def test_a_crash_long_before_a_node_is_lost_stays_a_crash(world: World) -> None:
    key = world.submit()
    world.run(key)
    dead, survivor = world.pods_of(key)
    world.exit(survivor.name, 1)
    world.run(key)
    world.now += world.policy.attribution_seconds + 1
    world.run(key)
    world.lose(dead.node)
    world.run(key)
    assert world.job(key).restarts.crash == 1


def relabel(world: World, key, queue: str) -> None:
    world.jobs[key] = replace(world.jobs[key], labels={c.LABEL_QUEUE: queue})


@pytest.mark.parametrize("queue", ["", "other"], ids=["removed", "changed"])
def test_a_queue_label_that_changes_moves_the_job_when_it_does_not_run(
    world: World, queue: str
) -> None:
    key = world.submit()
    world.run(key)
    relabel(world, key, queue)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING  # what runs goes on
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    world.now += world.policy.node_gone_seconds + 1
    world.run(key)
    if queue:
        assert world.workload(key).queue == "other"
        assert world.job(key).phase == Phase.RUNNING
    else:
        assert (world.job(key).reason, world.used()) == (c.Reason.QUEUE_MISSING, 0)
        assert not world.workloads


def test_suspended_and_changed_before_anybody_looks_keeps_no_quota(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.edit(key, suspend=True, roles=job_spec(replicas=3).roles)
    world.run(key)
    assert (world.job(key).phase, world.used(), world.pods) == (Phase.SUSPENDED, 0, {})
    world.edit(key, suspend=False)
    world.run(key)
    assert world.job(key).ready == "3/3"


def test_suspend_and_resume_undoes_somebody_elses_deactivation(world: World) -> None:
    key = world.submit()
    world.run(key)
    world.workloads[world.workload(key).name] = replace(world.workload(key), active=False)
    world.run(key)
    world.edit(key, suspend=True)
    world.run(key)
    assert world.job(key).phase == Phase.SUSPENDED
    world.edit(key, suspend=False)
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_losing_a_node_before_any_pod_exists_is_no_restart(world: World) -> None:
    key = world.submit()
    while world.job(key).placement is None:
        world.step(key)
        if world.job(key).placement is None:
            world.play()
    world.lose(world.job(key).placement.nodes[0])
    world.run(key)
    status = world.job(key)
    assert status.phase == Phase.RUNNING
    assert status.restarts == Restarts()


def test_pods_that_somebody_keeps_deleting_are_not_made_in_a_storm(world: World) -> None:
    key = world.submit()
    began = world.now
    while world.now < began + 600:
        world.run(key)
        for pod in world.pods_of(key):
            del world.pods[pod.name]
        world.now += 1
    assert 3 <= world.job(key).attempt <= 10
    assert world.job(key).restarts.crash == 0


def test_a_node_that_refuses_a_pod_is_left_out(world: World) -> None:
    key = world.submit(spec=job_spec(replicas=1))
    world.run(key)
    pod = world.pods_of(key)[0]
    world.pods[pod.name] = replace(
        pod, phase="Failed", ready=False, status_reason="UnexpectedAdmissionError"
    )
    world.run(key)
    status = world.job(key)
    assert (status.attempt, status.restarts.infrastructure) == (2, 1)
    assert world.pods_of(key)[0].node != pod.node
    assert [each.node for each in status.excluded_nodes] in ([pod.node], [])


def test_a_placement_that_somebody_has_broken_is_replaced(world: World) -> None:
    key = world.submit()
    world.run(key)
    job = world.jobs[key]
    roles = (job.status.placement.roles[0].model_copy(update={"nodes": "7*x"}),)
    broken = job.status.placement.model_copy(update={"roles": roles})
    world.jobs[key] = replace(job, status=job.status.model_copy(update={"placement": broken}))
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)


def test_a_node_that_has_worked_since_explains_no_crash(world: World) -> None:
    key = world.submit()
    world.run(key)
    survivor = world.pods_of(key)[1]
    world.exit(survivor.name, 1)
    world.run(key)
    world.now += 10
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
    world.now += 30
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    assert world.job(key).restarts.crash == 1


def test_a_gang_whose_pods_are_refused_is_withdrawn_whole_and_gives_its_quota_back(
    world: World,
) -> None:
    key = world.submit()
    world.refused[key] = "create pods job-a1-worker-1: forbidden"
    for _ in range(60):
        world.run(key)
        world.now += 10
        if world.used() == 0 and not world.pods:
            break
    assert (world.used(), world.pods) == (0, {})
    assert "Unschedulable" in world.reasons(key)
    del world.refused[key]
    world.now += 400
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_a_pod_that_is_about_to_fail_is_left_to_fail_for_its_logs(world: World) -> None:
    key = world.submit(spec=job_spec(replicas=1, faultTolerance={"maxCrashRestarts": 0}))
    world.run(key)
    world.exit("job-a1-worker-0", 3)
    world.pods["job-a1-worker-0"] = replace(world.pods["job-a1-worker-0"], phase="Running")
    world.run(key)
    assert world.job(key).attempts[-1].cause == Cause.CRASH
    assert not world.pods["job-a1-worker-0"].deleting
    world.pods["job-a1-worker-0"] = replace(world.pods["job-a1-worker-0"], phase="Failed")
    world.now += 1000
    world.run(key)
    assert world.job(key).phase == Phase.FAILED
    assert "job-a1-worker-0" in world.pods


def test_a_job_made_again_under_its_name_does_not_wait_for_pods_on_a_dead_node(
    world: World,
) -> None:
    key = world.submit()
    world.run(key)
    world.lose(world.pods_of(key)[0].node)
    world.run(key)
    assert world.job(key).attempt == 2
    # The job is deleted, and what the garbage collector can take is gone.
    world.workloads.clear()
    for pod in list(world.pods.values()):
        if pod.attempt == 2:
            del world.pods[pod.name]
    world.created.clear()
    world.jobs[key] = replace(
        world.jobs[key], uid="uid-again", status=type(world.job(key))(), resource_version="0"
    )
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)
    assert all(pod.job_uid == "uid-again" for pod in world.pods_of(key))
    assert "Resumed" not in world.reasons(key)[6:]
