"""Silent nodes: known by their Leases before they are marked, and waited for when most are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Tenant
from tests.integration.scrape import operator_samples

LEASES = {"GOODPUT_LEASE_TIMEOUT_SECONDS": "5", "GOODPUT_LEASE_POLL_SECONDS": "0.5"}
"""The sandbox's nodes renew every 2 s, and are marked after 8 s."""


def ready(tenant: Tenant, node: str) -> str:
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return tenant.sandbox.kubectl("get", "node", node, "-o", path)


def silence(tenant: Tenant, *nodes: str) -> None:
    """Let nodes fall silent at once; it is for others to notice."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda name: tenant.sandbox.simulated.kill(name, at_once=False), nodes))


def revive(tenant: Tenant, *nodes: str) -> None:
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(tenant.sandbox.simulated.revive, nodes))


def report_ready(tenant: Tenant, job: str) -> None:
    """What a kubelet does and KWOK does not: its pods were marked as not ready with their node."""
    ready = [{"type": each, "status": "True"} for each in ("Ready", "ContainersReady")]
    patch = json.dumps({"status": {"conditions": ready}})
    for pod in tenant.pods(job):
        arguments = ("--subresource=status", "--type=strategic", f"--patch={patch}")
        name = pod["metadata"]["name"]
        tenant.sandbox.kubectl("patch", "pod", name, "-n", tenant.name, *arguments)


def metric(sandbox: Sandbox, name: str) -> float:
    return next(each.value for each in operator_samples(sandbox) if each.name == name)


def marked_at(tenant: Tenant, node: str) -> str:
    """When the controller manager marked a node, as it has by now or will have soon."""
    tenant.eventually(lambda: ready(tenant, node) == "Unknown", f"{node} marked")
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].lastTransitionTime}'
    return tenant.sandbox.kubectl("get", "node", node, "-o", path)


def test_a_stale_lease_is_seen_before_the_node_is_marked(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator(LEASES)
    tenant.nodes(3)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    time.sleep(3)  # at least two looks at each Lease
    lost = tenant.status(job)["placement"]["nodes"][0]
    silence(tenant, lost)
    status = tenant.wait(job, "Running", attempt=2)
    assert status["attempts"][-1]["endedAt"] <= marked_at(tenant, lost)
    assert lost not in status["placement"]["nodes"]
    assert status["restarts"]["infrastructure"] == 1
    assert "has not renewed its Lease" in status["attempts"][-1]["message"]


def test_case_08_two_nodes_that_fall_silent_together_are_one_restart(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator(LEASES)
    tenant.nodes(8)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    time.sleep(3)
    lost = tenant.status(job)["placement"]["nodes"]
    silence(tenant, *lost)
    status = tenant.wait(job, "Running", attempt=2)
    assert not set(lost) & set(status["placement"]["nodes"])
    for node in lost:
        tenant.eventually(lambda node=node: ready(tenant, node) == "Unknown", f"{node} marked")
    time.sleep(3)
    status = tenant.status(job)
    assert (status["attempt"], status["restarts"]["infrastructure"]) == (2, 1)


@pytest.mark.parametrize("settings", [LEASES, {}], ids=["leases", "marks"])
def test_when_most_nodes_fall_silent_nothing_is_restarted_and_the_job_says_so(
    tenant: Tenant,
    restart_operator: Callable[[dict[str, str]], None],
    settings: dict[str, str],
) -> None:
    restart_operator({**settings, "GOODPUT_SILENCE_HOLD_SECONDS": "120"})
    nodes = tenant.nodes(6)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    pods = {pod["metadata"]["uid"] for pod in tenant.pods(job)}
    time.sleep(3)
    mine = tenant.status(job)["placement"]["nodes"]
    silent = [*mine, *(name for name in nodes if name not in mine)][:5]
    silence(tenant, *silent)
    status = tenant.wait(job, "Running", reason="ClusterSilent")
    told = {each["type"]: each["message"] for each in status["conditions"]}["Running"]
    assert "nodes fell silent at once" in told
    assert metric(tenant.sandbox, "goodput_operator_cluster_silent") == 1
    tenant.eventually(
        lambda: metric(tenant.sandbox, "goodput_operator_silent_nodes") >= 5, "all are silent"
    )
    for node in silent:
        tenant.eventually(lambda node=node: ready(tenant, node) == "Unknown", f"{node} marked")
    assert tenant.status(job)["reason"] == "ClusterSilent"
    revive(tenant, *silent)
    tenant.eventually(lambda: tenant.status(job)["reason"] != "ClusterSilent", "end of the hold")
    report_ready(tenant, job)
    status = tenant.wait(job, "Running", reason="AllRanksReady")
    assert (status["attempt"], status["restarts"]["infrastructure"]) == (1, 0)
    assert {pod["metadata"]["uid"] for pod in tenant.pods(job)} == pods
    assert metric(tenant.sandbox, "goodput_operator_cluster_silent") == 0
    assert "NodeLost" not in tenant.events(job)


def test_the_hold_ends_when_its_longest_time_is_over(
    tenant: Tenant, restart_operator: Callable[[dict[str, str]], None]
) -> None:
    restart_operator({"GOODPUT_SILENCE_HOLD_SECONDS": "15"})
    nodes = tenant.nodes(7)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    mine = tenant.status(job)["placement"]["nodes"]
    silence(tenant, *[*mine, *(name for name in nodes if name not in mine)][:5])
    tenant.wait(job, "Running", reason="ClusterSilent")
    status = tenant.wait(job, "Running", attempt=2, timeout=60)
    assert not set(mine) & set(status["placement"]["nodes"])
    assert status["restarts"]["infrastructure"] == 1
