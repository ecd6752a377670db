"""Placements as they are stored in ``status.placement``: a node table and run-length indices."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import count, groupby

from goodput_operator.api.spec import MAX_REPLICAS
from goodput_operator.api.status import Placement, RolePlacement
from goodput_operator.domain.placement.gang import Placed

Ranks = Set[tuple[str, int]]
"""Ranks of a gang, each by its role and its number in it."""
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_REPLACED = re.compile(r"([0-9]{1,6}):([1-9][0-9]{0,5})")
_RUN = re.compile(r"([0-9]{1,6})(?:\*([1-9][0-9]{0,5}))?")


def encode(placed: Placed) -> tuple[tuple[str, ...], tuple[RolePlacement, ...]]:
    """The ``nodes`` and ``roles`` of ``status.placement``, nodes in the order of their ranks."""
    index: dict[str, int] = {}
    for nodes in placed.nodes_by_role.values():
        for node in nodes:
            index.setdefault(node, len(index))
    roles = tuple(
        RolePlacement(name=role, nodes=_encode_runs(index[node] for node in nodes))
        for role, nodes in placed.nodes_by_role.items()
    )
    return tuple(index), roles


def decode(placement: Placement) -> dict[str, tuple[str, ...]]:
    """Nodes by role, in rank order.

    Raises ValueError if the placement is not one that ``encode`` has made.
    """
    return {
        role.name: _decode_runs(role.name, role.nodes, placement.nodes) for role in placement.roles
    }


def sizes(placement: Placement) -> dict[str, int]:
    """Ranks by role. Raises ValueError as ``decode`` does."""
    return {role: len(nodes) for role, nodes in decode(placement).items()}


def succeeded(placement: Placement) -> frozenset[tuple[str, int]]:
    """The ranks that are noted as having succeeded. Raises ValueError if that cannot be read."""
    return frozenset((role.name, rank) for role in placement.roles for rank in _decode_ranges(role))


def with_succeeded(placement: Placement, ranks: Ranks) -> Placement:
    """The placement with these ranks noted, and no others."""
    by_role: dict[str, list[int]] = {}
    for name, rank in sorted(ranks):
        by_role.setdefault(name, []).append(rank)
    roles = tuple(
        role.model_copy(update={"succeeded": _encode_ranges(by_role.get(role.name, ()))})
        for role in placement.roles
    )
    return placement if roles == placement.roles else placement.model_copy(update={"roles": roles})


def incarnations(placement: Placement) -> dict[tuple[str, int], int]:
    """How often each (role, rank) was replaced, for those that were.

    Raises ValueError if the placement is not one that ``replaced`` has made.
    """
    found = {}
    for role in placement.roles:
        for part in role.incarnations.split(",") if role.incarnations else ():
            match = _REPLACED.fullmatch(part)
            if match is None:
                raise ValueError(
                    f"placement of role {role.name}: incarnation {part!r} is not RANK:COUNT"
                )
            found[role.name, int(match[1])] = int(match[2])
    return found


def replaced(placement: Placement, moved: Mapping[tuple[str, int], str]) -> Placement:
    """The placement with these ranks on these nodes, each in its next incarnation."""
    times = incarnations(placement)
    times.update({rank: times.get(rank, 0) + 1 for rank in moved})
    nodes_by_role = {
        role: tuple(moved.get((role, rank), node) for rank, node in enumerate(nodes))
        for role, nodes in decode(placement).items()
    }
    nodes, roles = encode(Placed(nodes_by_role))
    told = {
        role.name: ",".join(
            f"{rank}:{n}" for (name, rank), n in sorted(times.items()) if name == role.name
        )
        for role in roles
    }
    moved_roles = tuple(
        role.model_copy(update={"incarnations": told[role.name] or None}) for role in roles
    )
    after = placement.model_copy(update={"nodes": nodes, "roles": moved_roles})
    return with_succeeded(after, succeeded(placement))


def _encode_ranges(ranks: Sequence[int]) -> str | None:
    """``0-3,7`` of sorted numbers; None of none."""
    found = []
    for _, run in groupby(zip(ranks, count()), lambda pair: pair[0] - pair[1]):
        first, *rest = [rank for rank, _ in run]
        found.append(f"{first}-{rest[-1]}" if rest else str(first))
    return ",".join(found) or None


def _decode_ranges(role: RolePlacement) -> Iterable[int]:
    for each in role.succeeded.split(",") if role.succeeded else ():
        match = _RANGE.fullmatch(each)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < MAX_REPLICAS:
            raise ValueError(
                f"placement of role {role.name}: succeeded {each!r} is not RANK or FIRST-LAST "
                f"with ranks below {MAX_REPLICAS}"
            )
        yield from range(first, last + 1)


def _encode_runs(indices: Iterable[int]) -> str:
    runs = ((index, sum(1 for _ in run)) for index, run in groupby(indices))
    return ",".join(str(index) if length == 1 else f"{index}*{length}" for index, length in runs)


@lru_cache(maxsize=64)
def _decode_runs(role: str, runs: str, table: tuple[str, ...]) -> tuple[str, ...]:
    """Remembered: a decision, and each pod that is made for it, asks for the same."""
    nodes: list[str] = []
    for run in runs.split(",") if runs else ():
        match = _RUN.fullmatch(run)
        index, length = (int(match[1]), int(match[2] or 1)) if match else (len(table), 0)
        if index >= len(table) or len(nodes) + length > MAX_REPLICAS:
            raise ValueError(
                f"placement of role {role}: run {run!r} is not INDEX or INDEX*LENGTH with an "
                f"index below {len(table)}, or there are more than {MAX_REPLICAS} ranks"
            )
        nodes += [table[index]] * length
    return tuple(nodes)
