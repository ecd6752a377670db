"""A gang is placed whole or not at all, and what does not bind is withdrawn whole."""

from __future__ import annotations

import time

from tests.integration.cluster import NO_RESTARTS, Manifest, Tenant

MAX_SECONDS = 60.0


def job_of(pod: Manifest) -> str:
    """The name of the job that a pod is a rank of."""
    return str(pod["metadata"]["labels"]["goodput.dev/job"])


def over(pod: Manifest) -> bool:
    """Whether a pod has ended, and holds no room any more."""
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def test_a_gang_that_cannot_bind_is_withdrawn_and_planned_without_that_node(
    tenant: Tenant,
) -> None:
    mine = tenant.nodes(3)
    tenant.queue(2)
    # The planner does not know about this pod's dislike of company; kube-scheduler does.
    dislike = {
        "labelSelector": {"matchExpressions": [{"key": "goodput.dev/job", "operator": "Exists"}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [dislike]}}
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hermit", "namespace": tenant.name},
            "spec": {
                "nodeName": mine[0],
                "affinity": affinity,
                "containers": [{"name": "c", "image": "other"}],
            },
        }
    )
    tenant.eventually(
        lambda: tenant.get("pods", "hermit")[0]["status"]["phase"] == "Running", "hermit"
    )
    job = tenant.submit()
    tenant.eventually(lambda: "Unschedulable" in tenant.events(job), "withdrawn", 30)
    status = tenant.wait(job, "Running", timeout=30)
    assert tenant.nodes_of(job) == set(mine[1:])
    assert status["restarts"] == NO_RESTARTS
    assert status["attempts"][0]["outcome"] == "Unschedulable"


def test_a_gang_waits_whole_while_somebody_else_has_the_room(tenant: Tenant) -> None:
    mine = tenant.nodes(2)
    tenant.queue(2)
    container = {"name": "c", "image": "other", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": tenant.name},
            "spec": {"nodeName": mine[0], "containers": [container]},
        }
    )
    tenant.eventually(
        lambda: tenant.get("pods", "other")[0]["status"]["phase"] == "Running", "foreign pod"
    )
    job = tenant.submit()
    tenant.eventually(
        lambda: tenant.status(job).get("reason") == "WaitingForNodes", "waiting for nodes"
    )
    assert tenant.pods(job) == []
    tenant.sandbox.kubectl("delete", "pod", "other", "-n", tenant.name)
    tenant.wait(job, "Running")


def test_case_20_two_gangs_with_room_for_one_run_one_after_the_other(tenant: Tenant) -> None:
    """Kueue would let both in, since there is quota for both."""
    tenant.nodes(2)
    tenant.queue(4)
    first = tenant.submit("first")
    second = tenant.submit("second")
    jobs = (first, second)
    ran: set[str] = set()
    deadline = time.monotonic() + MAX_SECONDS
    while len(ran) < 2 and time.monotonic() < deadline:
        holding = {job_of(pod) for pod in tenant.get("pods") if not over(pod)}
        assert len(holding) < 2, "two gangs hold a part of the room each"
        for job in jobs:
            if job not in ran and tenant.status(job).get("phase") == "Running":
                assert len(tenant.pods(job)) == 2
                ran.add(job)
                done = {"sandbox.goodput.dev/complete-after": "0s"}
                tenant.annotate(done, *(pod["metadata"]["name"] for pod in tenant.pods(job)))
    for job in jobs:
        assert tenant.wait(job, "Complete", MAX_SECONDS)["attempt"] == 1


def test_a_gang_of_which_some_pods_are_refused_is_withdrawn_whole(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    tenant.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "one", "namespace": tenant.name},
            "spec": {"hard": {"pods": "1"}},
        }
    )
    job = tenant.submit()
    tenant.eventually(lambda: "Unschedulable" in tenant.events(job), "withdrawn", 40)
    tenant.eventually(lambda: not tenant.pods(job), "no half gang", 20)
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back", 90)
    tenant.sandbox.kubectl("delete", "resourcequota", "one", "-n", tenant.name)
    tenant.wait(job, "Running", timeout=120)


def test_without_room_the_quota_goes_back_and_the_job_queues_again(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running")
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota in use")
    tenant.sandbox.simulated.kill(sorted(tenant.nodes_of(job))[0])
    tenant.eventually(lambda: tenant.used_gpus() == 0, "quota given back", timeout=60)
    assert tenant.pods(job) == []
    assert "QuotaReleased" in tenant.events(job)
    tenant.nodes(1)
    status = tenant.wait(job, "Running", timeout=60, attempt=2)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
