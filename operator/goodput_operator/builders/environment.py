"""The environment of a rank: ``GOODPUT_*``, and what its framework's rendezvous reads."""

import json
from collections.abc import Callable, Mapping

from goodput_operator.api.spec import Framework
from goodput_operator.builders import ranks
from goodput_operator.builders.progress import CA_FILE, TOKEN_FILE, ProgressTarget, progress_url
from goodput_operator.domain import interval
from goodput_operator.domain.model import JobView
from goodput_operator.domain.plan import CreatePod


def rank_environment(
    job: JobView, action: CreatePod, progress: ProgressTarget | None
) -> dict[str, str]:
    """Variables of a rank, in the order in which they are set."""
    variables = _goodput(job, action)
    if progress is not None:
        variables["GOODPUT_PROGRESS_URL"] = progress_url(job, progress)
        variables["GOODPUT_PROGRESS_TOKEN_FILE"] = TOKEN_FILE
        variables["GOODPUT_PROGRESS_CA_FILE"] = CA_FILE
    return {**variables, **_FRAMEWORKS[ranks.spec_of(job).framework](job, action)}


def checkpoint_directory(job: JobView) -> str | None:
    """The job's own directory below its checkpoint URI; each attempt writes below its own in it."""
    checkpoint = ranks.spec_of(job).checkpoint
    if checkpoint is None:
        return None
    return f"{checkpoint.uri.rstrip('/')}/{job.key.name}-{job.uid[:8]}"


def _goodput(job: JobView, action: CreatePod) -> dict[str, str]:
    spec = ranks.spec_of(job)
    variables = {
        "GOODPUT_JOB": job.key.name,
        "GOODPUT_NAMESPACE": job.key.namespace,
        "GOODPUT_ATTEMPT": str(action.attempt),
        "GOODPUT_INCARNATION": str(action.incarnation),
        "GOODPUT_ROLE": action.role,
        "GOODPUT_ROLE_RANK": str(action.rank),
        "GOODPUT_RANK": _world_rank(job, action),
        "GOODPUT_WORLD_SIZE": str(ranks.world_size(job, action.attempt)),
        "GOODPUT_COORDINATOR": str(ranks.coordinator(job, action.attempt)),
        "GOODPUT_RESUME_STEP": str(_resume_step(job, action.attempt)),
    }
    directory = checkpoint_directory(job)
    if spec.checkpoint is not None and directory is not None:
        variables["GOODPUT_CHECKPOINT_DIR"] = directory
        seconds = interval.published(job) or spec.checkpoint.interval_seconds
        variables["GOODPUT_CHECKPOINT_INTERVAL_SECONDS"] = f"{seconds:.0f}"
        variables["GOODPUT_CHECKPOINT_GRACE_SECONDS"] = str(spec.checkpoint.grace_period_seconds)
    return variables


def _world_rank(job: JobView, action: CreatePod) -> str:
    return str(ranks.world_rank(job, action.attempt, action.role, action.rank))


def _resume_step(job: JobView, attempt: int) -> int:
    """Fixed when the attempt was committed, so that all its ranks agree."""
    placement = job.status.placement
    return placement.resume_step if placement and placement.attempt == attempt else 0


def _pytorch(job: JobView, action: CreatePod) -> Mapping[str, str]:
    """For ``init_process_group`` with one process a pod, and for torchrun with any number."""
    master = ranks.coordinator(job, action.attempt)
    rank = _world_rank(job, action)
    world = str(ranks.world_size(job, action.attempt))
    return {
        "MASTER_ADDR": master.host,
        "MASTER_PORT": str(master.port),
        "NODE_RANK": rank,
        "NNODES": world,
        "RANK": rank,
        "WORLD_SIZE": world,
        "PET_NNODES": world,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": master.host,
        "PET_MASTER_PORT": str(master.port),
    }


def _jax(job: JobView, action: CreatePod) -> Mapping[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": str(ranks.coordinator(job, action.attempt)),
        "JAX_NUM_PROCESSES": str(ranks.world_size(job, action.attempt)),
        "JAX_PROCESS_ID": _world_rank(job, action),
    }


def _tensorflow(job: JobView, action: CreatePod) -> Mapping[str, str]:
    """``TF_CONFIG``; the names of the roles are TensorFlow's task types (chief, worker, ps, …)."""
    port = ranks.coordinator_port(ranks.spec_of(job))
    cluster = {
        role: [f"{host}:{port}" for host in hosts]
        for role, hosts in ranks.hosts_by_role(job, action.attempt)
    }
    config = {"cluster": cluster, "task": {"type": action.role, "index": action.rank}}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


def _plain(job: JobView, action: CreatePod) -> Mapping[str, str]:
    return {}


_FRAMEWORKS: Mapping[Framework, Callable[[JobView, CreatePod], Mapping[str, str]]] = {
    Framework.PYTORCH: _pytorch,
    Framework.JAX: _jax,
    Framework.TENSORFLOW: _tensorflow,
    Framework.PLAIN: _plain,
}
