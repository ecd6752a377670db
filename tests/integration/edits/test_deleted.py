"""A job deleted at any moment, with or without its namespace, and made again under its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from goodput_sandbox.operator_process import stop_operator
from tests.integration.cluster import COMPLETE, CRASH, NO_RESTARTS, Tenant
from tests.integration.edits import hands
from tests.integration.scrape import requests

RETAINED = {"crashBackoff": {"baseSeconds": 3600, "maxSeconds": 3600}}
STATES = {
    "pending": ("Pending", "QueueMissing"),
    "queued": ("Queued", "Inadmissible"),
    "uncreated": ("Starting", "APIError"),
    "half": ("Starting", "APIError"),
    "running": ("Running", "AllRanksReady"),
    "backing-off": ("Restarting", "BackingOff"),
    "evicted": ("Stopping", "Evicted"),
    "stopping": ("Stopping", "SuspendedByUser"),
    "suspended": ("Suspended", "SuspendedByUser"),
    "complete": ("Complete", "Completed"),
    "failed": ("Failed", "CrashBudgetExhausted"),
}
"""A job of each name, and the phase and reason that it is brought to."""


@pytest.fixture
def policy(tenant: Tenant) -> Iterator[None]:
    """Pods whose template says so are refused; whatever is held by the end may go."""
    hands.refuse_pods(tenant)
    yield
    hands.allow_pods(tenant)
    hands.let_go(tenant)


def bring_about(tenant: Tenant) -> None:
    """One job in each of the states."""
    ask = "edits.test/refuse"
    tenant.submit("pending", queue="")
    tenant.submit("queued", queue="nowhere")
    tenant.submit("uncreated", annotations={ask: "all"})
    tenant.submit("half", annotations={ask: "half"})
    tenant.submit("backing-off", annotations=CRASH, faultTolerance=RETAINED)
    tenant.submit("complete", annotations=COMPLETE)
    tenant.submit("failed", annotations=CRASH, faultTolerance={"maxCrashRestarts": 0})
    tenant.submit("suspended", suspend=True)
    for job in ("running", "evicted", "stopping"):
        tenant.submit(job)
    for job in ("running", "evicted", "stopping"):
        tenant.wait(job, "Running", 60)
    for job in ("evicted", "stopping"):
        hands.hold(tenant, *hands.names(tenant, job))
    tenant.patch("stopping", {"suspend": True})
    workload = tenant.status("evicted")["workload"]
    hands.patch(tenant, "workloads", workload, {"spec": {"active": False}})
    for job, (phase, reason) in STATES.items():
        tenant.wait(job, phase, 60, reason=reason)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_job_deleted_in_any_state_and_made_again_at_once_starts_afresh(
    tenant: Tenant, policy: None, propagation: str
) -> None:
    tenant.nodes(2, gpus=32)
    tenant.queue(64)
    bring_about(tenant)
    old = {job: hands.uid(tenant, job) for job in STATES}
    for job in STATES:
        hands.delete(tenant, job, propagation)
    if propagation == "Foreground":
        tenant.eventually(lambda: len(tenant.get("trainingjobs")) == 2, "all gone but what is held")
        hands.let_go(tenant)
        tenant.eventually(lambda: not tenant.get("trainingjobs"), "all gone")
    for job in STATES:
        tenant.submit(job)
    for job in STATES:
        status = tenant.wait(job, "Running", 90, ready="2/2")
        assert status["restarts"] == NO_RESTARTS
        hands.consistent(tenant, job)
    hands.let_go(tenant)
    for job, uid in old.items():
        for kind in hands.CHILDREN:
            tenant.eventually(
                lambda kind=kind, uid=uid: not hands.owned(tenant, kind, uid),
                f"{kind} of the old {job} gone",
            )
        assert len(hands.owned(tenant, "services", hands.uid(tenant, job))) == 1
        hands.consistent(tenant, job)
    tenant.eventually(lambda: tenant.used_gpus() == 2 * len(STATES), "quota counted once")


def test_orphans_are_left_alone_and_a_job_of_their_name_says_what_to_do(tenant: Tenant) -> None:
    tenant.nodes(4)
    tenant.queue(8)
    job = tenant.submit()
    tenant.wait(job, "Running")
    old, before = hands.uid(tenant, job), hands.children(tenant)
    hands.delete(tenant, job, "Orphan")
    tenant.eventually(lambda: not tenant.get("trainingjobs"), "job gone")
    tenant.submit()
    new = hands.uid(tenant, job)

    def told() -> bool:
        conditions = tenant.status(job).get("conditions", [])
        said = next((c["message"] for c in conditions if c["type"] == "Running"), "")
        return f"{job}-ranks: the name is taken" in said and "delete it" in said

    tenant.eventually(told, "it says what is in its way")
    assert before <= hands.children(tenant), "orphans are somebody's"
    assert len(hands.owned(tenant, "pods", None)) == 2
    assert not hands.owned(tenant, "pods", new)
    selector = f"--selector=goodput.dev/job-uid={old}"
    everything = f"pods,services,{hands.WORKLOADS}"
    tenant.sandbox.kubectl("delete", everything, "-n", tenant.name, selector)
    tenant.wait(job, "Running", 90, ready="2/2")
    hands.consistent(tenant, job)
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota counted once")


def test_case_06_an_operator_restarted_during_a_deletion_makes_nothing(
    tenant: Tenant, operator: Callable[[], None]
) -> None:
    tenant.nodes(4)
    tenant.queue(8)
    job = tenant.submit()
    tenant.wait(job, "Running")
    hands.hold(tenant, *hands.names(tenant, job))
    before = hands.children(tenant)
    hands.delete(tenant, job, "Foreground")
    stop_operator(tenant.sandbox, kill=True)
    operator()
    tenant.submit("other", replicas=1)
    tenant.wait("other", "Running", 60)
    other = hands.uid(tenant, "other")
    made = {e["metadata"]["uid"] for k in hands.CHILDREN for e in hands.owned(tenant, k, other)}
    assert hands.children(tenant) - made <= before
    assert tenant.get("trainingjobs", job)[0]["metadata"]["deletionTimestamp"]
    hands.let_go(tenant)
    tenant.eventually(lambda: not tenant.get("trainingjobs", job), "job gone")
    tenant.eventually(lambda: tenant.used_gpus() == 1, "quota given back")


@pytest.mark.parametrize("installed", [True, False], ids=["with the operator", "without"])
def test_case_26_a_deleted_namespace_goes(
    tenant: Tenant, operator: Callable[[], None], installed: bool
) -> None:
    tenant.nodes(4)
    tenant.queue(4)
    tenant.submit("queued", queue="nowhere")
    tenant.submit("suspended", suspend=True)
    job = tenant.submit()
    tenant.wait("queued", "Queued")
    tenant.wait("suspended", "Suspended")
    tenant.wait(job, "Running")
    held, free = hands.names(tenant, job)
    if installed:
        hands.hold(tenant, held)  # Until it is gone, the job itself is there.
        before = sum(requests(tenant.sandbox, {"create", "apply", "patch"}).values())
    else:
        stop_operator(tenant.sandbox)
    tenant.sandbox.kubectl("delete", "namespace", tenant.name, "--wait=false")
    if installed:
        tenant.eventually(lambda: not tenant.get("pods", free), "its pods go")
        seen = watch_states(tenant, job, 4)
        after = sum(requests(tenant.sandbox, {"create", "apply", "patch"}).values())
        assert after - before <= 25, "no storm of what can't succeed"
        assert seen[-1] == "NamespaceTerminating"
        assert len(seen) == len(set(seen)), f"it flaps: {seen}"
        assert {p["metadata"]["name"] for p in tenant.get("pods")} == {held}
        hands.let_go(tenant)
    gone = f"/api/v1/namespaces/{tenant.name}"
    tenant.eventually(lambda: tenant.api.request("GET", gone) is None, "namespace gone", 90)
    operator()


def watch_states(tenant: Tenant, job: str, seconds: float) -> list[str]:
    """Reasons that the job went through in this time."""
    seen: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        reason = tenant.status(job).get("reason", "")
        if reason and seen[-1:] != [reason]:
            seen.append(reason)
        time.sleep(0.1)
    return seen
