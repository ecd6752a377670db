"""What can happen to a job, told so that the writes after its trigger can be counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.integration.cluster import Tenant, kueue

PATIENCE = 90
"""Seconds; several operators share the machine."""
Step = Callable[[Tenant, str], None]


@dataclass(frozen=True)
class Story:
    """A job's way to where it is disturbed, what disturbs it, and where that ends."""

    name: str
    nodes: int
    prepare: Step
    disturb: Step
    phase: str
    attempt: int
    gpus: int
    writes: tuple[str, ...]
    """What the operator writes after the disturbance, each with how often, such as
    ``create pods 2``: it is killed before each single one."""

    @property
    def gaps(self) -> list[str]:
        """``VERB RESOURCE NUMBER`` of every single write."""
        each = [write.rsplit(" ", 1) for write in self.writes]
        return [f"{what} {n}" for what, count in each for n in range(1, int(count) + 1)]


def nothing(_tenant: Tenant, _job: str) -> None:
    """There is no job yet."""


def submit(tenant: Tenant, job: str) -> None:
    """The user makes the job."""
    tenant.submit(job)


def running(tenant: Tenant, job: str) -> None:
    """A job that runs."""
    tenant.submit(job)
    tenant.wait(job, "Running", PATIENCE)


def suspended(tenant: Tenant, job: str) -> None:
    """A job that was stopped by its user."""
    running(tenant, job)
    suspend(tenant, job)
    tenant.wait(job, "Suspended", PATIENCE)


def lose_a_node(tenant: Tenant, job: str) -> None:
    """A node of the gang dies."""
    tenant.sandbox.simulated.kill(str(tenant.pods(job)[0]["spec"]["nodeName"]))


def cordon(tenant: Tenant, job: str) -> None:
    """A node of the gang is to be freed; the job has nothing to save."""
    tenant.sandbox.kubectl("cordon", str(tenant.pods(job)[0]["spec"]["nodeName"]))


def be_preempted(tenant: Tenant, job: str) -> None:
    """Somebody more important takes the quota for a while: a Workload that nobody reconciles."""
    container = {
        "name": "main",
        "image": "other",
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
    }
    pods = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    rival = kueue(
        "Workload",
        f"rival-of-{job}",
        {
            "queueName": "main",
            "priority": 1000,
            "podSets": [{"name": "main", "count": 2, "template": pods}],
        },
        tenant.name,
    )
    tenant.apply(rival)
    tenant.eventually(
        lambda: not tenant.pods(job) and tenant.status(job)["restarts"]["preemption"] == 1,
        "preempted",
        PATIENCE,
    )
    tenant.delete("workloads", f"rival-of-{job}")


def suspend(tenant: Tenant, job: str) -> None:
    """The user suspends the job."""
    tenant.patch(job, {"suspend": True})


def resume(tenant: Tenant, job: str) -> None:
    """The user lets it go on."""
    tenant.patch(job, {"suspend": False})


def complete(tenant: Tenant, job: str) -> None:
    """All ranks end with exit code 0."""
    names = [pod["metadata"]["name"] for pod in tenant.pods(job)]
    tenant.annotate({"sandbox.goodput.dev/complete-after": "0s"}, *names)


def lose_a_node_and_get_another(tenant: Tenant, job: str) -> None:
    """A node dies, there is no other, so the quota goes back; later there is one."""
    lose_a_node(tenant, job)
    tenant.eventually(
        lambda: (
            tenant.status(job).get("restarts", {}).get("infrastructure") == 1
            and tenant.used_gpus() == 0
        ),
        "quota given back",
        PATIENCE,
    )
    tenant.nodes(1)


S = "apply trainingjobs/status"
W = "update workloads/status"
PLACED = ("create services 1", "create pods 2")
BLAMED = ("create nodehealths 1", "update nodehealths/status 1")
STORIES = [
    Story(
        *("start", 2, nothing, submit, "Running", 1, 2),
        ("create workloads 1", *PLACED, f"{S} 5", f"{W} 2", "create events 4"),
    ),
    Story(
        *("node loss", 3, running, lose_a_node, "Running", 2, 2),
        ("delete pods 2", *PLACED, *BLAMED, f"{S} 6", f"{W} 2", "create events 3"),
    ),
    Story(
        *("cordon", 3, running, cordon, "Running", 2, 2),
        ("delete pods 2", *PLACED, f"{S} 7", f"{W} 2", "create events 4"),
    ),
    Story(
        *("preemption", 2, running, be_preempted, "Running", 2, 2),
        ("delete pods 2", *PLACED, f"{S} 8", f"{W} 2", "create events 4"),
    ),
    Story(
        *("suspension", 2, running, suspend, "Suspended", 1, 0),
        ("delete pods 2", "patch workloads 1", f"{S} 4", f"{W} 1", "create events 1"),
    ),
    Story(
        *("resume", 2, suspended, resume, "Running", 2, 2),
        ("patch workloads 1", *PLACED, f"{S} 5", f"{W} 2", "create events 3"),
    ),
    Story(
        *("completion", 2, running, complete, "Complete", 1, 0),
        (f"{S} 1", f"{W} 1", "create events 1"),
    ),
    Story(
        *("no room", 2, running, lose_a_node_and_get_another, "Running", 2, 2),
        (
            *("delete pods 2", "patch workloads 2", *PLACED, *BLAMED),
            *(f"{S} 11", f"{W} 2", "create events 5"),
        ),
    ),
]
"""How many statuses are written depends on how much is seen at once; the rest is exact."""
