"""The arithmetic of packing: how many ranks of which role go on which node.

Works on plain vectors of integers; which nodes are allowed, and what it all means, is decided by
the caller. The algorithm, best fit with fewest bins, is the same for racks and for nodes in a rack:

1. While no bin holds all that is left, the bin that holds most is filled.
2. Of the bins that hold all that is left, the tightest gets it.

For ranks that are all alike this uses the fewest bins possible. With several roles, a rack's share
is found by placing role after role on its nodes; in which order is up to the caller.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

Vector = tuple[int, ...]

WEIGHT_SCALE = 10**12
"""Shares are integers of this fraction, so that equal shares compare as equal."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One role's ranks: how many, and what each of them takes."""

    count: int
    vector: Vector
    weight: int
    """Dominant share of one rank in all that is free, as a fraction of ``WEIGHT_SCALE``."""

    def times_in(self, free: Vector) -> int:
        """How many of these ranks the free amounts hold; ``count`` if they take nothing."""
        return min(
            (
                max(0, room) // amount
                for amount, room in zip(self.vector, free, strict=True)
                if amount
            ),
            default=self.count,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """A node that can take ranks of at least one role."""

    name: str
    rack: str
    free: Vector
    capacity: Vector
    """Ranks of each role it can take while nothing is on it; 0 where it does not match."""
    stranded: Vector
    """By role, the share that is left when it takes as many of that role as it can."""


@dataclass(frozen=True, slots=True)
class Rack:
    """Nodes that are close to one another."""

    name: str
    slots: tuple[Slot, ...]
    capacity: Vector
    """Ranks of each role that it could take, were there no other role."""
    size: int
    """The same by weight; only for comparing racks."""

    @classmethod
    def of(cls, name: str, slots: Sequence[Slot], demands: Sequence[Demand]) -> "Rack":
        """The rack of these nodes."""
        capacity = tuple(map(sum, zip(*(slot.capacity for slot in slots), strict=True)))
        return cls(name, tuple(slots), capacity, _weigh(capacity, demands))


class Share(NamedTuple):
    """Ranks of one role on one node."""

    role: int
    slot: Slot
    ranks: int


@dataclass(slots=True)
class Packing:
    """What has been placed so far, and what is left of it."""

    left: list[int]
    """Ranks that are not placed, by role."""
    shares: list[Share] = field(default_factory=list)
    taken: dict[str, Vector] = field(default_factory=dict)
    """Free amounts of the nodes that got a share."""

    @property
    def complete(self) -> bool:
        """Whether the gang is whole."""
        return not any(self.left)

    def free(self, slot: Slot) -> Vector:
        """What is still free on the node."""
        return self.taken.get(slot.name, slot.free)

    def add(self, share: Share, demand: Demand) -> None:
        """Put ranks on a node."""
        self.shares.append(share)
        self.left[share.role] -= share.ranks
        self.taken[share.slot.name] = tuple(
            room - amount * share.ranks
            for room, amount in zip(self.free(share.slot), demand.vector, strict=True)
        )


class _Offer(NamedTuple):
    """What a node could take of the role at hand; sorts by how tightly it would be filled."""

    ranks: int
    stranded: int
    name: str
    slot: Slot


class _Bid(NamedTuple):
    """What a rack could take of what is left; the smallest is the best."""

    less_weight: int
    """Weight of the ranks it would take, negated."""
    size: int
    name: str
    position: int
    """Of the rack in the sequence given."""


def pack(racks: Sequence[Rack], demands: Sequence[Demand], order: Sequence[int]) -> Packing:
    """Place as many ranks as this heuristic can, in as few racks and nodes as it can.

    ``order`` says which roles are placed first within a rack. What a rack could take shrinks as
    ranks are placed elsewhere, so its bid is made anew when it comes to the top, and not before.
    """
    packing = Packing(left=[demand.count for demand in demands])
    bids = [_first_bid(rack, position, demands) for position, rack in enumerate(racks)]
    heapify(bids)
    while bids and not packing.complete:
        rack = racks[bids[0].position]
        shares = _fill(rack, packing.left, demands, order)
        bid = _bid(rack, bids[0].position, shares, demands)
        if not shares:
            heappop(bids)
        elif bid > bids[0]:
            heapreplace(bids, bid)
        else:
            heappop(bids)
            for share in shares:
                packing.add(share, demands[share.role])
    return packing


def _first_bid(rack: Rack, position: int, demands: Sequence[Demand]) -> _Bid:
    """A bid that may be too good: the rack might not take as many of all roles at once."""
    ranks = [min(demand.count, most) for demand, most in zip(demands, rack.capacity, strict=True)]
    return _Bid(-_weigh(ranks, demands), rack.size, rack.name, position)


def _bid(rack: Rack, position: int, shares: Sequence[Share], demands: Sequence[Demand]) -> _Bid:
    weight = sum(share.ranks * demands[share.role].weight for share in shares)
    return _Bid(-weight, rack.size, rack.name, position)


def _weigh(ranks: Sequence[int], demands: Sequence[Demand]) -> int:
    return sum(count * demand.weight for count, demand in zip(ranks, demands, strict=True))


def _fill(
    rack: Rack, left: Sequence[int], demands: Sequence[Demand], order: Sequence[int]
) -> list[Share]:
    """Shares of a rack on which nothing has been placed yet."""
    packing = Packing(left=list(left))
    for role in order:
        demand = demands[role]
        if not packing.left[role] or not rack.capacity[role]:
            continue
        offers = _offers(rack.slots, role, demand, packing)
        for share in _cover(role, packing.left[role], offers):
            packing.add(share, demand)
    return packing.shares


def _offers(slots: Iterable[Slot], role: int, demand: Demand, packing: Packing) -> Iterator[_Offer]:
    for slot in slots:
        ranks = slot.capacity[role]
        if ranks and slot.name in packing.taken:
            ranks = demand.times_in(packing.taken[slot.name])
        if ranks:
            yield _Offer(ranks, slot.stranded[role], slot.name, slot)


def _cover(role: int, left: int, candidates: Iterable[_Offer]) -> Iterator[Share]:
    """Fewest nodes for ``left`` ranks, the last one filled as tightly as possible."""
    offers = sorted(candidates, key=lambda offer: (-offer.ranks, offer.stranded, offer.name))
    for position, offer in enumerate(offers):
        if left == 0:
            return
        if offer.ranks >= left:
            last = min(other for other in offers[position:] if other.ranks >= left)
            yield Share(role, last.slot, left)
            return
        yield Share(role, offer.slot, offer.ranks)
        left -= offer.ranks
