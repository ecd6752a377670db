"""Deterministic names of a job's children: the same job always has the same ones."""

import hashlib
import json

from goodput_operator.domain.model import JobView

MAX_LABEL = 63


def workload_name(job: JobView) -> str:
    """Name of the Workload that describes this job as its spec stands.

    It holds a hash of the job's UID and of what the pods are made of, so that other pods are
    another Workload: Kueue keeps pod sets immutable while quota is reserved, and an attempt ends
    when its Workload is no longer the job's. So a job that was suspended, changed and resumed
    faster than anybody has seen it suspended still does not go on with the pods of before.
    """
    digest = hashlib.sha256(job.uid.encode())
    if job.spec is not None:
        made_of = job.spec.model_dump(mode="json", include={"framework", "checkpoint"})
        digest.update(json.dumps(made_of, sort_keys=True).encode())
        for role in job.spec.roles:
            least = [] if role.min_replicas is None else [role.min_replicas]
            pod_set = [role.name, role.replicas, role.template, *least]
            digest.update(json.dumps(pod_set, sort_keys=True, default=str).encode())
    suffix = digest.hexdigest()[:10]
    return f"tj-{job.key.name[: MAX_LABEL - len(suffix) - 4].rstrip('-.')}-{suffix}"


def slice_prefix(job: JobView) -> str:
    """How the names of Workloads begin that ask for more ranks of a gang that runs smaller."""
    return f"{workload_name(job)}-g"


def slice_name(job: JobView, now: float) -> str:
    """Name of such a Workload that is decided on at ``now`` (POSIX seconds)."""
    return f"{slice_prefix(job)}{int(now)}"


def host_name(job: str, attempt: int, role: str, rank: int) -> str:
    """Host name of a rank: the same for the whole of its attempt, whichever pod it is."""
    return f"{job}-a{attempt}-{role}-{rank}"


def pod_name(job: str, attempt: int, role: str, rank: int, incarnation: int = 0) -> str:
    """Name of a rank's pod: one that replaces another must not wait for that one to be gone."""
    suffix = f"-r{incarnation}" if incarnation else ""
    return f"{host_name(job, attempt, role, rank)}{suffix}"


def service_name(job: str) -> str:
    """Name of the headless Service that gives the ranks their DNS names."""
    return f"{job}-ranks"
