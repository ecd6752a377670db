"""What the ranks mount: whether it is there, and which nodes can use it.

Looked at before a job queues, since a job that cannot run must not hold quota, and again for each
placement. A live attempt is never touched for it: what its pods have mounted stays mounted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.spec import Role
from goodput_operator.domain.context import Context
from goodput_operator.domain.placement.constraints import selector_terms
from goodput_operator.domain.placement.gang import NoPlace, Placed, RankGroup
from goodput_operator.domain.resources import Resources, pod_requests
from goodput_operator.domain.size import least
from goodput_operator.domain.storage import ClaimView


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the ranks could not run, wherever they were placed."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim that the ranks of some roles mount."""

    name: str
    field: str
    """Where the spec names it first."""
    roles: tuple[Role, ...]

    @property
    def ranks(self) -> int:
        """How many pods mount it, at least."""
        return sum(least(role) for role in self.roles)


def find_problem(context: Context) -> Problem | None:
    """What must change before the job can run, or None."""
    return _resource_claims(context) or _missing_claims(context) or _unshared(context)


def mounts(context: Context) -> tuple[Mount, ...]:
    """The claims that the job's pods mount, each once, in the order of the spec."""
    found: dict[str, Mount] = {}
    for role in context.spec.roles:
        for field, name in _claims_of(context, role):
            known = found.get(name)
            if known is None:
                found[name] = Mount(name, field, (role,))
            elif role not in known.roles:
                found[name] = replace(known, roles=(*known.roles, role))
    return tuple(found.values())


def bind(context: Context, group: RankGroup) -> RankGroup:
    """The group, kept to the nodes that can use the volumes of its role."""
    terms = []
    for mount in mounts(context):
        claim = _claim(context, mount)
        if claim is None or all(role.name != group.role for role in mount.roles):
            continue
        volume = context.snapshot.volumes.get(claim.volume or "")
        if volume is not None and volume.node_terms is not None:
            terms.append(selector_terms(volume.node_terms))
    if not terms:
        return group
    return replace(group, constraints=replace(group.constraints, volumes=tuple(terms)))


def check_spread(context: Context, placed: Placed) -> Placed | NoPlace:
    """The placement, unless ranks on several nodes would mount a claim that only one can."""
    for mount in mounts(context):
        claim = _claim(context, mount)
        nodes = {node for role in mount.roles for node in placed.nodes_by_role[role.name]}
        if claim is not None and not claim.shared and len(nodes) > 1:
            message = _one_node_only(mount, claim, f"there is room for them on {len(nodes)} only")
            return NoPlace(message, 0, c.Reason.VOLUME_NOT_SHARED)
    return placed


def _claims_of(context: Context, role: Role) -> Iterator[tuple[str, str]]:
    """Field and name of each claim that a role's pods mount."""
    checkpoint = context.spec.checkpoint
    if checkpoint is not None and checkpoint.volume is not None:
        yield "spec.checkpoint.volume.claimName", checkpoint.volume.claim_name
    for volume in _objects(role, "volumes"):
        source = volume.get("persistentVolumeClaim")
        name = source.get("claimName") if isinstance(source, Mapping) else None
        if isinstance(name, str) and name:
            field = f"volumes[{volume.get('name')}].persistentVolumeClaim.claimName"
            yield f"spec.roles[{role.name}].template.spec.{field}", name


def _objects(role: Role, field: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a list in a role's pod spec, whose schema is not the CRD's."""
    values = (role.template.get("spec") or {}).get(field)
    if isinstance(values, list | tuple):
        yield from (each for each in values if isinstance(each, Mapping))


def _claim(context: Context, mount: Mount) -> ClaimView | None:
    return context.snapshot.claims.get((context.job.key.namespace, mount.name))


def _resource_claims(context: Context) -> Problem | None:
    for role in context.spec.roles:
        for each in _objects(role, "resourceClaims"):
            if each.get("resourceClaimName"):
                return Problem(
                    c.Reason.UNSUPPORTED_RESOURCE_CLAIMS,
                    f"spec.roles[{role.name}].template.spec.resourceClaims[{each.get('name')}]"
                    f".resourceClaimName: Kueue gives no quota for the ResourceClaim "
                    f"{each['resourceClaimName']!r}, which ranks would share; set "
                    "resourceClaimTemplateName instead, so that each rank gets one of its own",
                )
    return None


def _missing_claims(context: Context) -> Problem | None:
    for mount in mounts(context):
        claim = _claim(context, mount)
        if claim is None:
            told = f"there is no PersistentVolumeClaim {mount.name!r} in the job's namespace"
            remedy = "create it, or correct the name"
        elif claim.deleting:
            told = f"PersistentVolumeClaim {mount.name!r} is being deleted"
            remedy = "create it anew once it is gone, or name another"
        elif claim.phase == "Lost":
            told = f"PersistentVolumeClaim {mount.name!r} has lost its volume {claim.volume}"
            remedy = "create it anew, or name another"
        else:
            continue
        message = f"{mount.field}: {told}; {remedy}: the job waits for it without holding quota"
        return Problem(c.Reason.VOLUME_CLAIM_MISSING, message)
    return None


def _unshared(context: Context) -> Problem | None:
    """Claims that can never serve all the ranks that mount them."""
    for mount in mounts(context):
        claim = _claim(context, mount)
        if claim is None or claim.shared or mount.ranks == 1:
            continue
        if claim.single_pod:
            message = (
                f"{mount.field}: PersistentVolumeClaim {mount.name!r} is ReadWriteOncePod, but "
                f"{mount.ranks} ranks mount it; use one that is ReadWriteMany"
            )
        elif not _fit_one_node(context, mount):
            message = _one_node_only(mount, claim, "no node is large enough for all of them")
        else:
            continue
        return Problem(c.Reason.VOLUME_NOT_SHARED, message)
    return None


def _one_node_only(mount: Mount, claim: ClaimView, why: str) -> str:
    modes = ", ".join(sorted(claim.access_modes))
    return (
        f"{mount.field}: PersistentVolumeClaim {mount.name!r} is {modes}, so that {mount.ranks} "
        f"ranks can mount it on one node only, and {why}; use one that is ReadWriteMany"
    )


def _fit_one_node(context: Context, mount: Mount) -> bool:
    """Whether an empty node could hold all ranks that mount it.

    Nodes without the devices that the ranks ask for are passed over, and if there are no others,
    such as in a group that is scaled to zero, it is left open.
    """
    needed = Resources.sum(
        pod_requests(role.template.get("spec") or {}) * least(role) for role in mount.roles
    )
    asked = [name for name, amount in needed if amount > 0]
    rooms = [node.allocatable for node in context.snapshot.nodes.values()]
    offering = [room for room in rooms if all(room.get(name) for name in asked)]
    return not offering or any(needed.fits_in(room) for room in offering)
