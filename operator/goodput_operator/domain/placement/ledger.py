"""What is free on each node, as it must be counted before a gang is planned."""

from collections import defaultdict
from collections.abc import Iterator, Set

from goodput_operator.api.status import Phase, Placement
from goodput_operator.domain.model import JobKey, JobView, PodView, Snapshot
from goodput_operator.domain.placement import codec
from goodput_operator.domain.resources import Resources, pod_requests

_ENDED = (Phase.COMPLETE, Phase.FAILED)


def is_created(placement: Placement) -> bool:
    """Whether all pods of the placement had been created, those of replaced ranks too."""
    return placement.created_at is not None and not placement.replacing


def free_resources(
    snapshot: Snapshot, job: JobKey, leaving: Set[str] = frozenset()
) -> dict[str, Resources]:
    """Free resources by node, for planning this job; negative where a node is over-committed.

    Counted as taken, beside what pods that are not ours use:

    - every pod of a TrainingJob that is bound or pinned to the node and has not ended, also when
      its job is gone;
    - every rank that another job has committed to the node and whose pod is yet to be created, so
      that two gangs never plan the same room.

    Not counted: pods of this job's earlier attempts that are Terminating on a live node. They go
    within their grace, and kube-scheduler binds the new pod as soon as they have; a recovery that
    waited for them would only lose that time. So are the pods ``leaving``, by UID.
    """
    taken: dict[str, list[Resources]] = defaultdict(list)
    for node, usage in snapshot.foreign_usage.items():
        taken[node].append(usage)
    for key, pods in snapshot.pods.items():
        planned = snapshot.jobs.get(job) if key == job else None
        for pod in pods:
            place = pod.node or pod.pinned_node
            if place is None or pod.terminal:
                continue
            if planned is not None and _makes_room(pod, planned, place, snapshot, leaving):
                continue
            taken[place].append(pod.requests)
    for key, other in snapshot.jobs.items():
        if key != job:
            for node, requests in _committed(other, snapshot.pods.get(key, ())):
                taken[node].append(requests)
    return {
        name: node.allocatable.less(taken[name]) if name in taken else node.allocatable
        for name, node in snapshot.nodes.items()
    }


def _makes_room(
    pod: PodView, job: JobView, place: str, snapshot: Snapshot, leaving: Set[str]
) -> bool:
    """Whether the pod is on its way out, on a node that sees to it."""
    placement = job.status.placement
    node = snapshot.nodes.get(place)
    if pod.job_uid != job.uid or node is None or node.lost:
        return False
    over = pod.attempt <= job.status.attempt and (
        placement is None or pod.attempt != placement.attempt
    )
    return (pod.deleting and over) or pod.uid in leaving


def _committed(job: JobView, pods: tuple[PodView, ...]) -> list[tuple[str, Resources]]:
    """Node and requests of each rank that is placed and whose pod was never created.

    Once all pods of the attempt had been created, a pod that is missing is lost, and its gang will
    be placed anew; a job that has ended or is being deleted creates no pods any more.
    """
    placement = job.status.placement
    if placement is None or is_created(placement):
        return []
    if job.deleting or job.status.phase in _ENDED:
        return []
    try:
        incarnations = codec.incarnations(placement)
        created = {
            (pod.role, pod.rank)
            for pod in pods
            if pod.attempt == placement.attempt
            and pod.job_uid == job.uid
            and pod.incarnation == incarnations.get((pod.role, pod.rank), 0)
        }
        return list(_outstanding(job, placement, created))
    except ValueError:
        # Somebody has edited that job so that no pod can come of it as it stands, and its own
        # decision will say so. It must not keep other jobs from being planned.
        return []


def _outstanding(
    job: JobView, placement: Placement, created: Set[tuple[str, int]]
) -> Iterator[tuple[str, Resources]]:
    templates = {role.name: role.template for role in job.spec.roles} if job.spec else {}
    for role, nodes in codec.decode(placement).items():
        if role not in templates:
            continue
        requests = pod_requests(templates[role].get("spec") or {})
        for rank, node in enumerate(nodes):
            if (role, rank) not in created:
                yield node, requests
