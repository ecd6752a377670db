"""A bounded search for gangs of several roles that the heuristic of ``packing`` could not place.

Depth first over the nodes. On each node only the sets of ranks are tried to which no further rank
can be added: a solution with fewer ranks there stays one when a rank is moved there from a later
node. A state is the node and how many ranks of each role are left; one that has failed isn't
entered again, so what the search finds or refutes within its budget of steps is exact.
"""

from collections.abc import Iterator, Sequence

from goodput_operator.domain.placement.packing import Demand, Share, Slot, Vector

MAX_STEPS = 10_000
"""Sets of ranks looked at before the search gives up; some tens of milliseconds."""


def search(
    slots: Sequence[Slot], demands: Sequence[Demand], max_steps: int = MAX_STEPS
) -> list[Share] | None:
    """The shares of a whole gang, or None when there are none or the budget is used up."""
    bounds = _Bounds(slots, demands)
    left = tuple(demand.count for demand in demands)
    if not bounds.promising(0, left):
        return None
    failed: set[tuple[int, Vector]] = set()
    path: list[tuple[Vector, Vector, Iterator[Vector]]] = []
    """By node: ranks left before it, ranks put on it, and what else can be tried on it."""
    steps = 0
    options = _fillings(slots[0], left, demands)
    while steps < max_steps:
        steps += 1
        filling = next(options, None)
        if filling is None:
            failed.add((len(path), left))
            if not path:
                return None
            left, _, options = path.pop()
            continue
        if not _is_full(slots[len(path)], filling, left, demands):
            continue
        rest = _minus(left, filling)
        if not any(rest):
            return _shares(slots, [*(taken for _, taken, _ in path), filling])
        depth = len(path) + 1
        if (depth, rest) in failed or not bounds.promising(depth, rest):
            continue
        path.append((left, filling, options))
        left, options = rest, _fillings(slots[depth], rest, demands)
    return None


class _Bounds:
    """What the nodes from each one on could hold at most, were there no other role or resource."""

    def __init__(self, slots: Sequence[Slot], demands: Sequence[Demand]) -> None:
        self._demands = demands
        ranks: Vector = (0,) * len(demands)
        room: Vector = (0,) * len(demands[0].vector)
        self._after = [(ranks, room)]
        for slot in reversed(slots):
            ranks = tuple(a + b for a, b in zip(ranks, slot.capacity, strict=True))
            room = tuple(a + max(0, b) for a, b in zip(room, slot.free, strict=True))
            self._after.append((ranks, room))
        self._after.reverse()

    def promising(self, depth: int, left: Vector) -> bool:
        """Whether these bounds leave it open that the nodes from ``depth`` on hold the rest."""
        ranks, room = self._after[depth]
        if any(wanted > most for wanted, most in zip(left, ranks, strict=True)):
            return False
        return all(
            sum(demand.vector[i] * count for demand, count in zip(self._demands, left, strict=True))
            <= most
            for i, most in enumerate(room)
        )


def _fillings(slot: Slot, left: Vector, demands: Sequence[Demand]) -> Iterator[Vector]:
    """Sets of ranks that fit on the node, as many of the last role as go on top of the others.

    The first is the one that takes as many as possible of each role in turn.
    """
    return _fillings_from(0, slot, slot.free, left, demands)


def _fillings_from(
    role: int, slot: Slot, free: Vector, left: Vector, demands: Sequence[Demand]
) -> Iterator[Vector]:
    most = 0
    if slot.capacity[role]:
        most = min(left[role], demands[role].times_in(free))
    if role == len(demands) - 1:
        yield (most,)
        return
    for count in range(most, -1, -1):
        rest = _less(free, demands[role], count)
        for others in _fillings_from(role + 1, slot, rest, left, demands):
            yield (count, *others)


def _is_full(slot: Slot, filling: Vector, left: Vector, demands: Sequence[Demand]) -> bool:
    """Whether no rank that is left could be added."""
    free = slot.free
    for demand, count in zip(demands, filling, strict=True):
        free = _less(free, demand, count)
    return not any(
        count < left[role] and slot.capacity[role] and demands[role].times_in(free)
        for role, count in enumerate(filling)
    )


def _less(free: Vector, demand: Demand, count: int) -> Vector:
    if count == 0:
        return free
    return tuple(room - amount * count for room, amount in zip(free, demand.vector, strict=True))


def _minus(left: Vector, filling: Vector) -> Vector:
    return tuple(a - b for a, b in zip(left, filling, strict=True))


def _shares(slots: Sequence[Slot], fillings: Sequence[Vector]) -> list[Share]:
    return [
        Share(role, slot, ranks)
        for slot, filling in zip(slots, fillings, strict=False)
        for role, ranks in enumerate(filling)
        if ranks
    ]
