"""Nodes that are cordoned, drained, unhealthy, or keep failing jobs, on a real API server."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable

import pytest

from tests.integration.cluster import Manifest, Tenant
from tests.integration.test_progress import Reporter, rank_zero

CHECKPOINT = {"uri": "gs://bucket/run", "gracePeriodSeconds": 5}
NEVER = {"maxCrashRestarts": 0, "maxInfrastructureRestarts": 0}
"""Budgets that a migration must not touch."""
UNHEALTHY = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"}


def set_condition(tenant: Tenant, node: str, **condition: str) -> None:
    """As node-problem-detector does."""
    patch = json.dumps({"status": {"conditions": [condition]}})
    arguments = ("--subresource=status", "--type=strategic", f"--patch={patch}")
    tenant.sandbox.kubectl("patch", "node", node, *arguments)


def training(tenant: Tenant, replicas: int = 2, name: str = "job") -> tuple[str, Reporter]:
    """A running job that has saved step 4 and reached step 5."""
    job = tenant.submit(name, replicas, checkpoint=CHECKPOINT, faultTolerance=NEVER)
    tenant.wait(job, "Running")
    reporter = rank_zero(tenant, job)
    assert reporter.post(reporter.token(), checkpointStep=4)[0] == 200
    return job, reporter


def counts(tenant: Tenant, job: str) -> dict[str, int]:
    """The causes that have happened at all."""
    return {cause: count for cause, count in tenant.status(job)["restarts"].items() if count}


def migrating(tenant: Tenant, job: str) -> tuple[str, str] | None:
    """Status and reason of that condition."""
    conditions = {each["type"]: each for each in tenant.status(job)["conditions"]}
    found = conditions.get("Migrating")
    return (found["status"], found["reason"]) if found else None


def penalties(tenant: Tenant) -> dict[str, Manifest]:
    """The NodeHealths of the tenant's nodes."""
    found = json.loads(tenant.sandbox.kubectl("get", "nodehealths", "-o", "json"))["items"]
    mine = (each for each in found if each["metadata"]["name"].startswith(f"{tenant.name}-"))
    return {each["metadata"]["name"]: each for each in mine}


def version(tenant: Tenant, job: str) -> str:
    made: str = tenant.get("trainingjobs", job)[0]["metadata"]["resourceVersion"]
    return made


def host(tenant: Tenant, job: str) -> str:
    node: str = tenant.status(job)["placement"]["nodes"][0]
    return node


def test_case_16_a_bad_node_condition_moves_the_job(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job, reporter = training(tenant)
    sick = host(tenant, job)
    set_condition(tenant, sick, **UNHEALTHY, message="task docker:7 blocked for 300 seconds")
    tenant.eventually(lambda: migrating(tenant, job) == ("True", "NodeUnhealthy"), "a move")
    move = tenant.status(job)["move"]
    assert move["nodes"] == [sick]
    assert "KernelDeadlock (task docker:7 blocked for 300 seconds)" in move["message"]
    assert len(tenant.pods(job, 1)) == 2
    assert reporter.post(reporter.token(), step=9, checkpointStep=9)[0] == 200
    status = tenant.wait(job, "Running", attempt=2)
    assert sick not in status["placement"]["nodes"]
    assert status["placement"]["resumeStep"] == 9
    assert status["attempts"][-1]["outcome"] == "Migrated"
    assert counts(tenant, job) == {"migration": 1}
    tenant.eventually(lambda: sick in penalties(tenant), "a NodeHealth")
    assert penalties(tenant)[sick]["status"]["failures"] == {"condition": 1}


def test_nothing_is_placed_on_an_unhealthy_node_until_it_is_well(tenant: Tenant) -> None:
    sick, _ = tenant.nodes(2)
    tenant.queue(2)
    set_condition(tenant, sick, **UNHEALTHY)
    job = tenant.submit()
    tenant.wait(job, "Queued", reason="WaitingForNodes")
    messages = [each["message"] for each in tenant.status(job)["conditions"]]
    assert any("1 node(s) had the condition KernelDeadlock" in each for each in messages)
    set_condition(tenant, sick, type="KernelDeadlock", status="False", reason="KernelHasNoDeadlock")
    tenant.wait(job, "Running")


def test_a_cordon_with_room_moves_the_gang_after_a_checkpoint_and_counts_nothing(
    tenant: Tenant,
) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job, reporter = training(tenant)
    left = host(tenant, job)
    tenant.sandbox.kubectl("cordon", left)
    tenant.eventually(lambda: migrating(tenant, job) == ("True", "NodeCordoned"), "a move")
    time.sleep(2)
    assert tenant.status(job)["attempt"] == 1
    assert reporter.post(reporter.token(), step=9, checkpointStep=9)[0] == 200
    status = tenant.wait(job, "Running", attempt=2)
    assert left not in status["placement"]["nodes"]
    assert status["placement"]["resumeStep"] == 9
    assert counts(tenant, job) == {"migration": 1}
    assert "move" not in status
    assert migrating(tenant, job) == ("False", "Migrated")
    assert "Migrating" in tenant.events(job)
    assert "Migrated" in tenant.events(job)
    assert penalties(tenant) == {}


def test_a_cordon_without_room_stops_nobody_until_there_is_room(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job, reporter = training(tenant)
    left = host(tenant, job)
    tenant.sandbox.kubectl("cordon", left)
    tenant.eventually(lambda: migrating(tenant, job) == ("False", "WaitingForRoom"), "its word")
    before = version(tenant, job)
    time.sleep(5)
    assert version(tenant, job) == before
    assert (tenant.status(job)["attempt"], tenant.status(job)["phase"]) == (1, "Running")
    tenant.nodes(1)
    tenant.eventually(lambda: migrating(tenant, job) == ("True", "NodeCordoned"), "a move")
    assert reporter.post(reporter.token(), step=9, checkpointStep=9)[0] == 200
    status = tenant.wait(job, "Running", attempt=2)
    assert left not in status["placement"]["nodes"]


def test_an_uncordon_calls_the_move_off(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job, reporter = training(tenant)
    pods = {pod["metadata"]["uid"] for pod in tenant.pods(job)}
    left = host(tenant, job)
    tenant.sandbox.kubectl("cordon", left)
    tenant.eventually(lambda: migrating(tenant, job) == ("True", "NodeCordoned"), "a move")
    tenant.sandbox.kubectl("uncordon", left)
    tenant.eventually(lambda: migrating(tenant, job) == ("False", "NothingToLeave"), "its end")
    assert reporter.post(reporter.token(), step=9, checkpointStep=9)[0] == 200
    time.sleep(2)
    status = tenant.wait(job, "Running", attempt=1)
    assert "move" not in status
    assert {pod["metadata"]["uid"] for pod in tenant.pods(job)} == pods
    assert "MigrationCancelled" in tenant.events(job)


def test_a_drain_is_a_migration(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job, _ = training(tenant)
    left = host(tenant, job)
    tenant.sandbox.kubectl("drain", left, "--ignore-daemonsets", "--timeout=60s", timeout=90)
    status = tenant.wait(job, "Running", attempt=2)
    assert left not in status["placement"]["nodes"]
    assert counts(tenant, job) == {"migration": 1}


def test_a_drain_waits_at_an_integer_budget_while_the_gang_saves_and_leaves(tenant: Tenant) -> None:
    tenant.nodes(3)
    tenant.queue(2)
    job, reporter = training(tenant)
    tenant.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": job, "namespace": tenant.name},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"goodput.dev/job": job}}},
        }
    )

    def guarded() -> bool:
        return bool(tenant.get("pdb", job)[0].get("status", {}).get("currentHealthy") == 2)

    tenant.eventually(guarded, "the budget counts the gang")
    left = host(tenant, job)
    argv = [*tenant.kubectl.argv, "drain", left, "--ignore-daemonsets", "--timeout=90s"]
    drain = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    tenant.eventually(lambda: migrating(tenant, job) == ("True", "NodeCordoned"), "a move")
    time.sleep(6)
    assert len(tenant.pods(job, 1)) == 2, "a pod was evicted against the budget"
    assert reporter.post(reporter.token(), step=9, checkpointStep=9)[0] == 200
    status = tenant.wait(job, "Running", attempt=2)
    assert status["placement"]["resumeStep"] == 9
    assert counts(tenant, job) == {"migration": 1}
    assert drain.wait(timeout=60) == 0


@pytest.mark.extended
def test_without_a_checkpoint_it_leaves_at_the_deadline(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator({"GOODPUT_MOVE_SECONDS": "3"})
    tenant.nodes(3)
    tenant.queue(2)
    job, _ = training(tenant)
    left = host(tenant, job)
    tenant.sandbox.kubectl("cordon", left)
    status = tenant.wait(job, "Running", attempt=2)
    assert "without a new checkpoint" in status["attempts"][-1]["message"]


@pytest.mark.extended
def test_without_room_an_unhealthy_node_is_left_and_the_quota_given_back(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator({"GOODPUT_MOVE_SECONDS": "3"})
    tenant.nodes(2)
    tenant.queue(2)
    job, _ = training(tenant)
    set_condition(tenant, host(tenant, job), **UNHEALTHY)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back", timeout=60)
    assert counts(tenant, job) == {"migration": 1}
    tenant.nodes(1)
    tenant.wait(job, "Running", attempt=2, timeout=60)


# Nodes that keep failing jobs


def lose_three_times(tenant: Tenant, node: str) -> None:
    """Three jobs lose the node; each is gone before it comes back."""
    for number in range(3):
        name = f"lost{number}"
        pinned = {"nodeSelector": {"kubernetes.io/hostname": node}}
        tenant.submit(name, 1, pod_spec=pinned)
        tenant.wait(name, "Running")
        tenant.sandbox.simulated.kill(node)

        def counted(number: int = number) -> bool:
            found = penalties(tenant).get(node)
            return found is not None and found["status"].get("count", 0) == number + 1

        tenant.eventually(counted, f"loss {number + 1} counted", timeout=60)
        tenant.sandbox.kubectl("delete", "trainingjob", name, "-n", tenant.name, "--wait=false")
        tenant.sandbox.simulated.revive(node)
        tenant.eventually(lambda: tenant.used_gpus() == 0, "its quota free", timeout=60)


@pytest.mark.extended
def test_a_node_that_fails_three_jobs_is_used_last_and_shown(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator({"GOODPUT_NODE_AVOID_SECONDS": "3"})
    bad, *good = tenant.nodes(3)
    tenant.queue(3)
    lose_three_times(tenant, bad)
    shown = tenant.sandbox.kubectl("get", "nh", bad)
    header, row = shown.splitlines()
    assert header.split() == ["NAME", "SCORE", "FAILURES", "LAST", "KIND", "AVOIDED", "AGE"]
    assert row.split()[2] == "3"
    assert row.split()[4] == "nodeLost"
    restart_operator({"GOODPUT_NODE_AVOID_SECONDS": "3"})
    for number in range(3):
        tenant.submit(f"job{number}", 1)
        tenant.wait(f"job{number}", "Running")
    places = [tenant.status(f"job{number}")["placement"]["nodes"] for number in range(3)]
    assert sorted(place for (place,) in places[:2]) == sorted(good)
    assert places[2] == [bad]
    assert penalised(tenant, bad) > 0


def penalised(tenant: Tenant, node: str) -> float:
    """What the metric says of the node."""
    port = tenant.sandbox.forward(tenant.sandbox.ports.operator_health)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    name = f'goodput_node_penalty{{node="{node}"}}'
    return float(next(line for line in lines if line.startswith(name)).split()[-1])


@pytest.mark.extended
def test_a_node_that_was_replaced_or_pardoned_begins_anew(tenant: Tenant) -> None:
    *_, bad = tenant.nodes(2)
    tenant.queue(2)
    lose_three_times(tenant, bad)
    tenant.sandbox.simulated.delete(bad)
    tenant.eventually(lambda: bad not in penalties(tenant), "the NodeHealth gone with its node", 60)
    assert tenant.nodes(1) == [bad]
    job = tenant.submit(replicas=1, pod_spec={"nodeSelector": {"kubernetes.io/hostname": bad}})
    tenant.wait(job, "Running")
    tenant.sandbox.simulated.kill(bad)
    tenant.eventually(lambda: bad in penalties(tenant), "a NodeHealth of the new node")
    assert penalties(tenant)[bad]["status"]["count"] == 1
    tenant.sandbox.kubectl("delete", "nh", bad)
    time.sleep(3)
    assert penalties(tenant) == {}, "what an administrator has deleted came back"


@pytest.mark.extended
def test_a_crash_that_other_nodes_do_not_show_is_held_against_the_node(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(1)
    job = tenant.submit(replicas=1, faultTolerance={"crashBackoff": {"baseSeconds": 1}})
    tenant.wait(job, "Running")
    reporter = rank_zero(tenant, job)
    assert reporter.post(reporter.token(), step=50)[0] == 200
    reached = lambda: tenant.status(job).get("progress", {}).get("step") == 50  # noqa: E731
    tenant.eventually(reached, "step 50", timeout=45)
    bad = host(tenant, job)
    crash(tenant, job)
    status = tenant.wait(job, "Running", attempt=2)
    assert status["placement"]["nodes"] != [bad]
    assert penalties(tenant) == {}
    second = rank_zero(tenant, job)
    assert second.post(second.token(), step=60)[0] == 200
    tenant.eventually(lambda: bad in penalties(tenant), "the blame", timeout=60)
    assert penalties(tenant)[bad]["status"]["failures"] == {"crash": 1}


def crash(tenant: Tenant, job: str) -> None:
    """Let the job's only rank exit with 1, as its kubelet would say."""
    (pod,) = tenant.pods(job)
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": finished}
    state = {"terminated": ended, "running": None}
    container = {
        "name": "main",
        "image": "trainer",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    patch = json.dumps({"status": {"phase": "Failed", "containerStatuses": [container]}})
    tenant.sandbox.kubectl(
        *("patch", "pod", pod["metadata"]["name"], "-n", tenant.name),
        *("--subresource=status", "--type=strategic", f"--patch={patch}"),
    )
