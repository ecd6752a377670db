"""Places a gang: every rank on a node, or none at all.

1. The nodes that match a role's constraints and have room for one of its ranks become slots.
2. ``packing`` puts the gang on as few racks as it can (one, if one holds it: the tightest) and
   within them on as few nodes. Nodes with accelerators that the gang does not ask for come into it
   only when the others cannot hold it. For a single role this is exact: if the gang fits, it is
   placed.
3. With several roles it is tried in several orders, then without regard to racks, then by a bounded
   ``search``.
4. The ranks of a role are laid out rack by rack and node by node, so that neighbours are close.

The result depends on nothing but the values given, not on the order in which they come.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from goodput_operator import constants as c
from goodput_operator.domain.model import NodeView
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.packing import (
    WEIGHT_SCALE,
    Demand,
    Packing,
    Rack,
    Share,
    Slot,
    Vector,
    pack,
)
from goodput_operator.domain.placement.search import search
from goodput_operator.domain.resources import Resources, format_quantity

RACK_LABELS = (c.LABEL_RACK, "topology.kubernetes.io/rack")
"""The first that a node has names its rack. Nodes without one are taken for neighbours."""

USED_LAST, AVOIDED = 1, 2
"""Levels of nodes that get ranks only when the others have no room."""
EXCLUDED = "node(s) left out for this job for now"
SHUNNED = "node(s) avoided for now since they keep failing jobs"
MAX_REASONS = 10
"""A message names at most so many reasons; taints alone can differ on every node."""

_NOTHING = Resources()
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks of one role, all alike."""

    role: str
    count: int
    requests: Resources
    constraints: NodeConstraints


@dataclass(frozen=True, slots=True)
class Placed:
    """A place for every rank."""

    nodes_by_role: Mapping[str, tuple[str, ...]]
    """Nodes by role, in the order of its ranks."""


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The gang fits nowhere as a whole."""

    message: str
    """Which rank has no node, and why: a count of nodes by reason, as kube-scheduler gives it."""
    fitting: int
    """How many of its ranks would fit at once."""
    reason: str = c.Reason.WAITING_FOR_NODES
    """Reason of the condition that says so."""


def plan_gang(
    groups: Sequence[RankGroup],
    nodes: Mapping[str, NodeView],
    free: Mapping[str, Resources],
    excluded: Collection[str] = (),
    last: Mapping[str, int] | None = None,
) -> Placed | NoPlace:
    """Place all ranks of all groups on nodes that match and have room, or say why not.

    ``free`` is what is left on each node (``ledger.free_resources``); a node missing from it has
    nothing. Nodes in ``excluded`` get no rank. Those in ``last`` get one only when the gang has no
    place on the others, those with a higher number after those with a lower (from 1 on).
    """
    table = _Table(groups, nodes, free, frozenset(excluded), last or {})
    packing = _solve(table)
    if not packing.complete:
        return _no_place(table, packing)
    return Placed(_lay_out(groups, packing.shares))


class _Table:
    """The problem in numbers: demands of the roles, and slots of the nodes, sorted by name."""

    def __init__(
        self,
        groups: Sequence[RankGroup],
        nodes: Mapping[str, NodeView],
        free: Mapping[str, Resources],
        excluded: Collection[str],
        last: Mapping[str, int],
    ) -> None:
        self.last = last
        self.groups = groups
        self.nodes = nodes
        self.free = free
        self.excluded = excluded
        self.names = sorted({name for group in groups for name in group.requests.amounts})
        matches = list(self._matches())
        total = [0] * len(self.names)
        for _, room, _ in matches:
            total = [most + max(0, here) for most, here in zip(total, room, strict=True)]
        self.unit_weights = [WEIGHT_SCALE // most if most else 0 for most in total]
        self.demands = [self._demand(group) for group in groups]
        self.slots = [slot for slot in self._slots(matches) if any(slot.capacity)]

    def mismatch(self, group: RankGroup, node: NodeView) -> str | None:
        """Why a rank of the group can't be on the node, whatever room it has."""
        reason = group.constraints.mismatch(node)
        if reason is None and node.name in self.excluded:
            return SHUNNED if self.last.get(node.name) == AVOIDED else EXCLUDED
        return reason

    def room(self, node: str) -> Vector:
        """What the node has free of the resources that the gang asks for."""
        amounts = self.free.get(node, _NOTHING).amounts
        return tuple(amounts.get(name, 0) for name in self.names)

    def strands_accelerators(self, slot: Slot) -> bool:
        """Whether it has devices free that no role asks for."""
        return any(
            "/" in name and amount > 0 and name not in self.names
            for name, amount in self.free.get(slot.name, _NOTHING).amounts.items()
        )

    def _matches(self) -> Iterator[tuple[NodeView, Vector, tuple[bool, ...]]]:
        """Nodes that at least one role may be on, their room, and which roles may."""
        constraints = list(dict.fromkeys(group.constraints for group in self.groups))
        role_constraints = [constraints.index(group.constraints) for group in self.groups]
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if name in self.excluded:
                continue
            allowed = [constraint.mismatch(node) is None for constraint in constraints]
            if any(allowed):
                yield node, self.room(name), tuple(allowed[i] for i in role_constraints)

    def _demand(self, group: RankGroup) -> Demand:
        vector = tuple(max(0, group.requests.get(name)) for name in self.names)
        shares = (amount * weight for amount, weight in zip(vector, self.unit_weights, strict=True))
        return Demand(group.count, vector, max(1, *shares) if vector else 1)

    def _slots(
        self, matches: Sequence[tuple[NodeView, Vector, tuple[bool, ...]]]
    ) -> Iterator[Slot]:
        """Nodes that are alike are reckoned once."""
        known: dict[tuple[Vector, tuple[bool, ...]], tuple[Vector, Vector]] = {}
        for node, room, allowed in matches:
            kind = known.get((room, allowed))
            if kind is None:
                kind = known[room, allowed] = self._capacity(room, allowed)
            yield Slot(node.name, _rack_of(node), room, *kind)

    def _capacity(self, room: Vector, allowed: tuple[bool, ...]) -> tuple[Vector, Vector]:
        capacity = tuple(
            demand.times_in(room) if may else 0
            for demand, may in zip(self.demands, allowed, strict=True)
        )
        stranded = tuple(
            sum(
                (here - amount * ranks) * weight
                for here, amount, weight in zip(room, demand.vector, self.unit_weights, strict=True)
            )
            for demand, ranks in zip(self.demands, capacity, strict=True)
        )
        return capacity, stranded


def _solve(table: _Table) -> Packing:
    """The gang if it can be placed, else as much of it as could be on all nodes."""
    demands, slots = table.demands, table.slots
    if not _may_fit(slots, demands):
        return pack(next(_groupings(slots, demands)), demands, _orders(demands)[0])
    best: Packing | None = None
    for tier in _tiers(table):
        for racks in _groupings(tier, demands):
            for order in _orders(demands):
                packing = pack(racks, demands, order)
                if packing.complete:
                    return packing
                if tier is slots and (best is None or sum(packing.left) < sum(best.left)):
                    best = packing
    shares = search(slots, demands)
    if shares is not None:
        return Packing(left=[0] * len(demands), shares=shares)
    assert best is not None, "the last tier has all slots"
    return best


def _may_fit(slots: Sequence[Slot], demands: Sequence[Demand]) -> bool:
    """Whether each role would fit were there no other, and all roles were all nodes one.

    For a single role: whether it does fit.
    """
    roles = (
        sum(slot.capacity[role] for slot in slots) >= demand.count
        for role, demand in enumerate(demands)
    )
    wanted = (
        sum(amount * demand.count for amount, demand in zip(amounts, demands, strict=True))
        for amounts in zip(*(demand.vector for demand in demands), strict=True)
    )
    return all(roles) and all(
        amount <= sum(max(0, slot.free[i]) for slot in slots) for i, amount in enumerate(wanted)
    )


def _tiers(table: _Table) -> Iterator[list[Slot]]:
    """Nodes to try, more and more of them; the last tier has all.

    First without nodes that have failed of late, then with these, then with nodes whose
    accelerators would lie idle, and last with those that are avoided.
    """
    slots, last = table.slots, table.last
    idle = {slot.name for slot in slots if table.strands_accelerators(slot)}
    tiers: list[list[Slot]] = []
    for strands, level in product((False, True), (0, USED_LAST)):
        tier = [
            slot
            for slot in slots
            if last.get(slot.name, 0) <= level and (strands or slot.name not in idle)
        ]
        if len(tier) < len(slots) and tier not in tiers and _may_fit(tier, table.demands):
            tiers.append(tier)
    yield from tiers
    yield slots


def _groupings(slots: Sequence[Slot], demands: Sequence[Demand]) -> Iterator[list[Rack]]:
    """By rack; and for several roles, whose ranks may block one another, as a single one too."""
    by_rack: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots:
        by_rack[slot.rack].append(slot)
    yield [Rack.of(name, members, demands) for name, members in sorted(by_rack.items())]
    if len(demands) > 1 and len(by_rack) > 1:
        yield [Rack.of("", slots, demands)]


def _orders(demands: Sequence[Demand]) -> list[tuple[int, ...]]:
    """Orders to place the roles in: largest rank first, largest role first, smallest rank first."""
    roles = range(len(demands))
    by_rank = sorted(roles, key=lambda role: (-demands[role].weight, -demands[role].count, role))
    by_role = sorted(roles, key=lambda role: (-demands[role].weight * demands[role].count, role))
    orders = (tuple(by_rank), tuple(by_role), tuple(reversed(by_rank)))
    return list(dict.fromkeys(orders))


def _rack_of(node: NodeView) -> str:
    for label in RACK_LABELS:
        rack = node.labels.get(label)
        if rack:
            return rack
    return ""


def _lay_out(groups: Sequence[RankGroup], shares: Sequence[Share]) -> dict[str, tuple[str, ...]]:
    nodes_by_role: dict[str, list[str]] = {group.role: [] for group in groups}
    by_place = sorted(shares, key=lambda s: (_natural(s.slot.rack), _natural(s.slot.name)))
    for share in by_place:
        nodes_by_role[groups[share.role].role] += [share.slot.name] * share.ranks
    return {role: tuple(nodes) for role, nodes in nodes_by_role.items()}


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sorts node-2 before node-10."""
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(name)]
    return parts, name


def _no_place(table: _Table, packing: Packing) -> NoPlace:
    role = next(i for i, left in enumerate(packing.left) if left)
    group = table.groups[role]
    rank = group.count - packing.left[role]
    size = sum(group.count for group in table.groups)
    fitting = size - sum(packing.left)
    reasons = _reasons(table, group, packing)
    beside = f"; {fitting} of {size} ranks would fit" if fitting else ""
    return NoPlace(
        f"0/{len(table.nodes)} nodes have room for rank {group.role}-{rank} of {group.count}: "
        f"{reasons}{beside}",
        fitting,
    )


def _reasons(table: _Table, group: RankGroup, packing: Packing) -> str:
    """Nodes by reason, most first; a node that lacks several resources counts for each."""
    if not table.nodes:
        return "there are no nodes"
    counts: Counter[str] = Counter()
    short: Counter[str] = Counter()
    most: dict[str, int] = {}
    for node in table.nodes.values():
        reason = table.mismatch(group, node)
        if reason is not None:
            counts[reason] += 1
            continue
        room = packing.taken.get(node.name) or table.room(node.name)
        free = Resources(zip(table.names, room, strict=True))
        for name in group.requests.shortfall(free):
            short[name] += 1
            most[name] = max(most.get(name, 0), free.get(name))
    for name, count in short.items():
        needs = format_quantity(group.requests.get(name), name)
        free_at_most = format_quantity(most[name], name)
        counts[f"insufficient {name} (needs {needs}, most free {free_at_most})"] = count
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{count} {reason}" for reason, count in ranked[:MAX_REASONS]]
    if len(ranked) > MAX_REASONS:
        named.append(f"and {len(ranked) - MAX_REASONS} more reasons")
    return ", ".join(named)
