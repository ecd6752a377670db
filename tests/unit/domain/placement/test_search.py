"""The bounded search behind gangs of several roles."""

from goodput_operator.domain.placement.packing import Demand, Packing, Rack, Slot, Vector, pack
from goodput_operator.domain.placement.search import search


def demand(count: int, *vector: int) -> Demand:
    return Demand(count, vector, weight=max(1, *vector))


def slots(demands: list[Demand], *free: Vector) -> list[Slot]:
    return [
        Slot(f"n{i}", "", room, tuple(d.times_in(room) for d in demands), (0,) * len(demands))
        for i, room in enumerate(free)
    ]


DEMANDS = [demand(3, 1, 2), demand(2, 2, 1)]
"""One of each fills a node of (3, 3)."""


def test_finds_what_role_after_role_does_not() -> None:
    nodes = slots(DEMANDS, (3, 3), (4, 6))
    for order in ((0, 1), (1, 0)):
        assert not pack([Rack.of("", nodes, DEMANDS)], DEMANDS, order).complete
    found = search(nodes, DEMANDS)
    assert found is not None
    packing = Packing(left=[demand.count for demand in DEMANDS])
    for share in found:
        packing.add(share, DEMANDS[share.role])
    assert packing.complete
    assert all(room >= 0 for free in packing.taken.values() for room in free)


def test_refutes_what_does_not_fit_although_the_sums_would() -> None:
    nodes = slots(DEMANDS, (2, 2), (2, 2), (3, 5))
    assert search(nodes, DEMANDS) is None


def test_gives_up_when_its_budget_is_used_up() -> None:
    nodes = slots(DEMANDS, (3, 3), (4, 6))
    assert search(nodes, DEMANDS, max_steps=1) is None
    assert search(nodes, DEMANDS) is not None
