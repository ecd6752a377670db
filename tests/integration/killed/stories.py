"""What can happen to a job, told so that the writes after its trigger can be counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.integration.cluster import Tenant, kueue

PATIENCE = 90
"""Seconds; several operators share the machine."""
JOB = "job"


@dataclass(frozen=True)
class Story:
    """A job's way to where it is disturbed, what disturbs it, and where that ends."""

    name: str
    prepare: Callable[[Tenant], None]
    disturb: Callable[[Tenant], None]
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


def ground(tenant: Tenant, nodes: int = 3) -> None:
    """Nodes and a queue for one gang of two."""
    tenant.nodes(nodes)
    tenant.queue(2)


def running(tenant: Tenant) -> None:
    """A job that runs, with a node to spare."""
    ground(tenant)
    tenant.submit(JOB)
    tenant.wait(JOB, "Running", PATIENCE)


def running_without_a_spare_node(tenant: Tenant) -> None:
    """A job that runs on all the nodes there are."""
    ground(tenant, 2)
    tenant.submit(JOB)
    tenant.wait(JOB, "Running", PATIENCE)


def suspended(tenant: Tenant) -> None:
    """A job that was stopped by its user."""
    running(tenant)
    suspend(tenant)
    tenant.wait(JOB, "Suspended", PATIENCE)


def submit(tenant: Tenant) -> None:
    """The user makes the job."""
    tenant.submit(JOB)


def lose_a_node(tenant: Tenant) -> None:
    """A node of the gang dies."""
    tenant.sandbox.simulated.kill(str(tenant.pods(JOB)[0]["spec"]["nodeName"]))


def be_preempted(tenant: Tenant) -> None:
    """Somebody more important takes the quota for a while: a Workload that nobody reconciles."""
    container = {
        "name": "main",
        "image": "other",
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
    }
    pods = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    rival = kueue(
        "Workload",
        "rival",
        {
            "queueName": "main",
            "priority": 1000,
            "podSets": [{"name": "main", "count": 2, "template": pods}],
        },
        tenant.name,
    )
    tenant.apply(rival)
    tenant.eventually(
        lambda: not tenant.pods(JOB) and tenant.status(JOB)["restarts"]["preemption"] == 1,
        "preempted",
        PATIENCE,
    )
    tenant.sandbox.kubectl("delete", "workload.kueue.x-k8s.io", "rival", "-n", tenant.name)


def suspend(tenant: Tenant) -> None:
    """The user suspends the job."""
    tenant.patch(JOB, {"suspend": True})


def resume(tenant: Tenant) -> None:
    """The user lets it go on."""
    tenant.patch(JOB, {"suspend": False})


def complete(tenant: Tenant) -> None:
    """All ranks end with exit code 0."""
    names = [pod["metadata"]["name"] for pod in tenant.pods(JOB)]
    annotation = "sandbox.goodput.dev/complete-after=0s"
    tenant.sandbox.kubectl("annotate", "pod", *names, annotation, "-n", tenant.name)


def lose_a_node_and_get_another(tenant: Tenant) -> None:
    """A node dies, there is no other, so the quota goes back; later there is one."""
    lose_a_node(tenant)
    tenant.eventually(
        lambda: (
            tenant.status(JOB).get("restarts", {}).get("infrastructure") == 1
            and tenant.used_gpus() == 0
        ),
        "quota given back",
        PATIENCE,
    )
    tenant.nodes(1)


S = "apply trainingjobs/status"
W = "update workloads/status"
PLACED = ("create services 1", "create pods 2")
STORIES = [
    Story(
        *("start", ground, submit, "Running", 1, 2),
        ("create workloads 1", *PLACED, f"{S} 5", f"{W} 2", "create events 4"),
    ),
    Story(
        *("node loss", running, lose_a_node, "Running", 2, 2),
        ("delete pods 2", *PLACED, f"{S} 5", f"{W} 2", "create events 3"),
    ),
    Story(
        *("preemption", running, be_preempted, "Running", 2, 2),
        ("delete pods 2", *PLACED, f"{S} 8", f"{W} 2", "create events 4"),
    ),
    Story(
        *("suspension", running, suspend, "Suspended", 1, 0),
        ("delete pods 2", "patch workloads 1", f"{S} 4", f"{W} 1", "create events 1"),
    ),
    Story(
        *("resume", suspended, resume, "Running", 2, 2),
        ("patch workloads 1", *PLACED, f"{S} 5", f"{W} 2", "create events 3"),
    ),
    Story(
        *("completion", running, complete, "Complete", 1, 0),
        (f"{S} 1", f"{W} 1", "create events 1"),
    ),
    Story(
        *("no room", running_without_a_spare_node, lose_a_node_and_get_another, "Running", 2, 2),
        ("delete pods 2", "patch workloads 2", *PLACED, f"{S} 10", f"{W} 2", "create events 5"),
    ),
]
"""How many statuses are written depends on how much is seen at once; the rest is exact."""
