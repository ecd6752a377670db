"""What ranks have done stays done, and what is stopped is not ready."""

from __future__ import annotations

from tests.integration.cluster import COMPLETE, NO_RESTARTS, Tenant


def test_a_rank_that_has_succeeded_is_not_run_again_when_its_pod_or_node_goes(
    tenant: Tenant,
) -> None:
    nodes = tenant.nodes(3)
    tenant.queue(3)
    job = tenant.submit(replicas=3)
    tenant.wait(job, "Running", ready="3/3")
    first, second, third = (f"{job}-a1-worker-{rank}" for rank in range(3))
    tenant.annotate(COMPLETE, first, second)

    def noted() -> bool:
        roles = tenant.status(job)["placement"]["roles"]
        return [role.get("succeeded") for role in roles] == ["0-1"]

    tenant.eventually(noted, "ranks 0 and 1 noted as done")
    place = next(p for p in tenant.pods(job) if p["metadata"]["name"] == second)
    lost = place["spec"]["nodeName"]
    assert lost in nodes
    tenant.sandbox.simulated.delete(lost)
    tenant.delete("pods", first)
    tenant.delete("pods", second, grace_seconds=0)
    tenant.eventually(lambda: len(tenant.get("pods")) == 1, "both pods gone")
    tenant.annotate(COMPLETE, third)
    status = tenant.wait(job, "Complete", ready="3/3")
    assert (status["attempt"], status["restarts"]) == (1, NO_RESTARTS)


def test_the_workload_of_a_suspended_job_does_not_say_that_its_pods_are_ready(
    tenant: Tenant,
) -> None:
    def pods_ready() -> tuple[str, str]:
        conditions = tenant.get("workloads")[0]["status"]["conditions"]
        found = next(each for each in conditions if each["type"] == "PodsReady")
        return found["status"], found["reason"]

    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit()
    tenant.wait(job, "Running", ready="2/2")
    tenant.eventually(lambda: pods_ready() == ("True", "Started"), "pods ready")
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended")
    assert pods_ready() == ("False", "WaitForStart")
    tenant.patch(job, {"suspend": False})
    tenant.wait(job, "Running", ready="2/2", attempt=2)
    tenant.eventually(lambda: pods_ready() == ("True", "Started"), "pods ready again")


def test_kubectl_describe_tells_the_events_of_one_second_in_their_order(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    job = tenant.submit(annotations=COMPLETE)
    tenant.wait(job, "Complete")
    story = ["Queued", "GangPlaced", "Admitted", "GangStarted", "Completed"]
    tenant.eventually(lambda: tenant.events(job) == story, "all Events")
    described = tenant.kubectl.run("describe", "trainingjob", job, "-n", tenant.name).stdout
    rows = described[described.index("Events:") :].splitlines()[3:]
    assert [row.split()[1] for row in rows if row.strip()] == story
