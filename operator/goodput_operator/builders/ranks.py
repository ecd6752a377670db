"""Numbers and addresses of a job's ranks.

World ranks count the roles in the order of the spec, and the ranks of each in turn: those that the
attempt has, which may be fewer than the spec asks for.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from goodput_operator import constants as c
from goodput_operator.api.spec import Role, TrainingJobSpec
from goodput_operator.domain.model import JobView
from goodput_operator.domain.names import host_name, service_name
from goodput_operator.domain.size import of_attempt

COORDINATOR_PORT_NAME = "coordinator"
"""A port of this name in the first role's template moves the rendezvous there."""


class Coordinator(NamedTuple):
    """Where rank 0 hosts the rendezvous."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def spec_of(job: JobView) -> TrainingJobSpec:
    """The job's spec. Raises ValueError when it could not be read: nothing is built then."""
    if job.spec is None:
        raise ValueError(f"TrainingJob {job.key} has no readable spec: {job.spec_error}")
    return job.spec


def role_of(spec: TrainingJobSpec, name: str) -> Role:
    """The role of this name. Raises ValueError when there is none."""
    for role in spec.roles:
        if role.name == name:
            return role
    raise ValueError(f"role {name!r} is none of {', '.join(role.name for role in spec.roles)}")


def world_size(job: JobView, attempt: int) -> int:
    """Number of ranks of an attempt over all roles."""
    return sum(of_attempt(job, attempt).values())


def world_rank(job: JobView, attempt: int, role: str, rank: int) -> int:
    """Rank over all roles of a rank within its role. Raises ValueError when there is no such role,
    or no readable spec."""
    before, sizes = 0, of_attempt(job, attempt)
    for name, count in sizes.items():
        if name == role:
            return before + rank
        before += count
    raise ValueError(f"role {role!r} is none of {', '.join(sizes)}")


def host(job: JobView, attempt: int, role: str, rank: int) -> str:
    """DNS name of a rank, the same for the whole of its attempt."""
    name = host_name(job.key.name, attempt, role, rank)
    return f"{name}.{service_name(job.key.name)}.{job.key.namespace}.svc"


def coordinator(job: JobView, attempt: int) -> Coordinator:
    """Rank 0 of the first role, and the port named ``coordinator`` of its template, or ours."""
    spec = spec_of(job)
    return Coordinator(host(job, attempt, spec.roles[0].name, 0), coordinator_port(spec))


def coordinator_port(spec: TrainingJobSpec) -> int:
    """The port of the rendezvous."""
    for container in (spec.roles[0].template.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == COORDINATOR_PORT_NAME and port.get("containerPort"):
                return int(port["containerPort"])
    return c.COORDINATOR_PORT


def hosts_by_role(job: JobView, attempt: int) -> Iterator[tuple[str, list[str]]]:
    """Every role with the DNS names of its ranks in an attempt."""
    for role, count in of_attempt(job, attempt).items():
        yield role, [host(job, attempt, role, rank) for rank in range(count)]


def owner_reference(job: JobView) -> dict[str, Any]:
    """Makes the job the controller of a child, which goes when the job goes.

    A deletion in the foreground waits for it: that is what tells it from one in the background.
    """
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.KIND,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_labels(job: JobView) -> dict[str, str]:
    """Labels by which every child names its job."""
    return {c.LABEL_JOB: job.key.name, c.LABEL_JOB_UID: job.uid}
