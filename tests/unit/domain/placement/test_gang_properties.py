"""What holds of every placement, checked against brute force on small clusters."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from goodput_operator.domain.model import NodeView
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.gang import Placed, RankGroup, plan_gang
from goodput_operator.domain.resources import Resources

NAMES = ("cpu", "memory", "nvidia.com/gpu")


@dataclass(frozen=True)
class Case:
    """A gang and a cluster."""

    groups: tuple[RankGroup, ...]
    nodes: dict[str, NodeView]
    free: dict[str, Resources]
    excluded: frozenset[str]

    def candidates(self, group: RankGroup) -> list[str]:
        return [
            name
            for name, node in self.nodes.items()
            if group.constraints.mismatch(node) is None and name not in self.excluded
        ]


def vectors(least: int, most: int) -> st.SearchStrategy[Resources]:
    return st.fixed_dictionaries({name: st.integers(least, most) for name in NAMES}).map(Resources)


@st.composite
def cases(draw: st.DrawFn, max_roles: int, max_nodes: int, max_ranks: int, most: int = 6) -> Case:
    names = [f"n{i}" for i in range(draw(st.integers(0, max_nodes)))]
    nodes = {
        name: NodeView(
            name=name,
            labels={
                "goodput.dev/rack": draw(st.sampled_from("abc")),
                "pool": draw(st.sampled_from("xy")),
            },
            taints=(),
            unschedulable=False,
            ready=draw(st.integers(0, 9)) > 0,
            ready_since=None,
            ready_message="",
            heartbeat_at=None,
            allocatable=Resources(),
        )
        for name in names
    }
    groups = tuple(
        RankGroup(
            role=f"role-{i}",
            count=draw(st.integers(1, max_ranks)),
            requests=draw(vectors(0, 3)),
            constraints=NodeConstraints(selector=draw(st.sampled_from([(), (("pool", "x"),)]))),
        )
        for i in range(draw(st.integers(1, max_roles)))
    )
    free = {name: draw(vectors(-1, most)) for name in names}
    excluded = draw(st.frozensets(st.sampled_from(names), max_size=1)) if names else frozenset()
    return Case(groups, nodes, free, excluded)


def plan(case: Case) -> Placed | None:
    found = plan_gang(case.groups, case.nodes, case.free, case.excluded)
    size = sum(group.count for group in case.groups)
    if isinstance(found, Placed):
        return found
    assert 0 <= found.fitting < size
    assert found.message.startswith(f"0/{len(case.nodes)} nodes have room for rank role-")
    return None


@given(cases(max_roles=4, max_nodes=12, max_ranks=10, most=20))
@settings(max_examples=300, deadline=None)
def test_a_placement_is_whole_matches_and_over_commits_no_node(case: Case) -> None:
    found = plan(case)
    event("placed" if found else "not placed")
    if found is None:
        return
    assert {role: len(nodes) for role, nodes in found.nodes_by_role.items()} == {
        group.role: group.count for group in case.groups
    }
    left = dict(case.free)
    for group in case.groups:
        allowed = case.candidates(group)
        for node in found.nodes_by_role[group.role]:
            assert node in allowed
            assert group.requests.fits_in(left[node])
            left[node] -= group.requests


@given(cases(max_roles=1, max_nodes=8, max_ranks=20, most=12))
@settings(max_examples=300, deadline=None)
def test_ranks_that_are_alike_are_placed_exactly_when_they_fit(case: Case) -> None:
    (group,) = case.groups
    room = 0
    for node in case.candidates(group):
        times = group.requests.times_in(case.free[node])
        room += group.count if times is None else times
    assert (plan(case) is not None) == (room >= group.count)


@given(cases(max_roles=1, max_nodes=7, max_ranks=12, most=12))
@settings(max_examples=200, deadline=None)
def test_ranks_that_are_alike_use_as_few_racks_as_there_can_be(case: Case) -> None:
    found = plan(case)
    if found is None:
        return
    (group,) = case.groups
    room = room_by_rack(case, group, [n for n in case.candidates(group) if is_plain(case, n)])
    if sum(room.values()) < group.count or group.requests.get("nvidia.com/gpu"):
        room = room_by_rack(case, group, case.candidates(group))
    fewest, held = 0, 0
    for most in sorted(room.values(), reverse=True):
        if held < group.count:
            fewest, held = fewest + 1, held + most
    racks = [case.nodes[n].labels["goodput.dev/rack"] for n in found.nodes_by_role[group.role]]
    assert len(set(racks)) == fewest
    changes = sum(a != b for a, b in pairwise(racks))
    assert changes == fewest - 1, "ranks of a rack are neighbours"


def is_plain(case: Case, node: str) -> bool:
    """A node whose use leaves no accelerator idle that others could have had."""
    return case.free[node].get("nvidia.com/gpu") <= 0


def room_by_rack(case: Case, group: RankGroup, nodes: Iterable[str]) -> dict[str, int]:
    room: dict[str, int] = {}
    for node in nodes:
        rack = case.nodes[node].labels["goodput.dev/rack"]
        times = group.requests.times_in(case.free[node])
        room[rack] = room.get(rack, 0) + (group.count if times is None else times)
    return room


def fits_by_brute_force(case: Case) -> bool:
    """Every assignment of every rank is tried."""
    ranks = [group for group in case.groups for _ in range(group.count)]
    for choice in product(*(case.candidates(group) for group in ranks)):
        left = dict(case.free)
        for group, node in zip(ranks, choice, strict=True):
            if not group.requests.fits_in(left[node]):
                break
            left[node] -= group.requests
        else:
            return True
    return False


@given(cases(max_roles=3, max_nodes=4, max_ranks=2))
@settings(max_examples=300, deadline=None)
def test_a_small_gang_of_several_roles_is_placed_exactly_when_it_fits(case: Case) -> None:
    fits = fits_by_brute_force(case)
    event("fits" if fits else "does not fit")
    assert (plan(case) is not None) == fits


@given(cases(max_roles=3, max_nodes=10, max_ranks=8, most=15), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_the_order_of_the_input_does_not_matter(case: Case, random: Random) -> None:
    names = list(case.nodes)
    random.shuffle(names)
    shuffled = Case(
        groups=case.groups,
        nodes={name: case.nodes[name] for name in names},
        free={
            name: Resources(dict(reversed(list(case.free[name].amounts.items()))))
            for name in reversed(names)
        },
        excluded=case.excluded,
    )
    first = plan_gang(case.groups, case.nodes, case.free, case.excluded)
    second = plan_gang(shuffled.groups, shuffled.nodes, shuffled.free, shuffled.excluded)
    assert first == second
