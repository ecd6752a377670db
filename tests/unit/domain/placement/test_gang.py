"""Where a gang is placed, and what is said when it isn't."""

from collections.abc import Mapping

import pytest

from goodput_operator.domain.model import NodeView, Taint
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.gang import (
    MAX_REASONS,
    NoPlace,
    Placed,
    RankGroup,
    plan_gang,
)
from goodput_operator.domain.resources import Resources

GPU = "nvidia.com/gpu"
RACKS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}


def amounts(gpus: int = 0, cpu: int = 0) -> Resources:
    return Resources({GPU: gpus * 1000, "cpu": cpu * 1000})


def node(
    name: str, rack: str | None = None, ready: bool = True, taint: Taint | None = None
) -> NodeView:
    return NodeView(
        name=name,
        labels={} if rack is None else {"goodput.dev/rack": rack},
        taints=(taint,) if taint else (),
        unschedulable=False,
        ready=ready,
        ready_since=None,
        ready_message="",
        heartbeat_at=None,
        allocatable=Resources(),
    )


def group(role: str, count: int, gpus: int = 0, cpu: int = 0) -> RankGroup:
    return RankGroup(role, count, amounts(gpus, cpu), NodeConstraints())


def place(
    groups: list[RankGroup],
    free: Mapping[str, Resources],
    racks: Mapping[str, str] | None = None,
    excluded: tuple[str, ...] = (),
) -> Placed | NoPlace:
    nodes = {name: node(name, (racks or {}).get(name)) for name in free}
    return plan_gang(groups, nodes, free, excluded)


def nodes_of(found: Placed | NoPlace, role: str = "worker") -> tuple[str, ...]:
    assert isinstance(found, Placed), found
    return found.nodes_by_role[role]


def gpus(**free: int) -> dict[str, Resources]:
    return {name: amounts(gpus=count) for name, count in free.items()}


class TestWithinARack:
    def test_the_tightest_node_that_holds_all_is_taken(self) -> None:
        assert nodes_of(place([group("worker", 4, 1)], gpus(a=8, b=4, c=6))) == ("b",) * 4

    def test_as_few_nodes_as_possible_are_used_and_the_last_is_the_tightest(self) -> None:
        found = nodes_of(place([group("worker", 10, 1)], gpus(a=2, b=8, c=3, d=4)))
        assert found == ("a",) * 2 + ("b",) * 8

    def test_of_equal_nodes_the_one_with_the_least_left_over_is_taken(self) -> None:
        free = {"a": amounts(8, 96), "b": amounts(8, 40), "c": amounts(8, 64)}
        assert nodes_of(place([group("worker", 1, 8, 32)], free)) == ("b",)

    def test_ranks_are_laid_out_node_by_node_in_natural_order(self) -> None:
        free = {f"node-{i}": amounts(2) for i in (10, 9, 1)}
        found = nodes_of(place([group("worker", 6, 1)], free))
        assert found == ("node-1", "node-1", "node-9", "node-9", "node-10", "node-10")


class TestRacks:
    def test_one_rack_is_better_than_fewer_nodes_in_two(self) -> None:
        found = place([group("worker", 6, 1)], gpus(a1=3, a2=3, b1=5, c1=5), RACKS)
        assert set(nodes_of(found)) == {"a1", "a2"}

    def test_the_tightest_rack_that_holds_the_gang_is_taken(self) -> None:
        found = place([group("worker", 8, 1)], gpus(a1=8, a2=8, b1=4, b2=4, c1=6), RACKS)
        assert set(nodes_of(found)) == {"b1", "b2"}

    def test_else_as_few_racks_as_possible_and_the_last_is_the_tightest(self) -> None:
        found = place([group("worker", 18, 1)], gpus(a1=8, a2=8, b1=4, b2=4, c1=3), RACKS)
        assert nodes_of(found) == ("a1",) * 8 + ("a2",) * 8 + ("c1",) * 2

    def test_neighbouring_ranks_share_a_node_then_a_rack(self) -> None:
        racks = {"n1": "a", "n2": "b", "n3": "a", "n4": "b"}
        found = place([group("worker", 8, 1)], gpus(n1=2, n2=2, n3=2, n4=2), racks)
        assert nodes_of(found) == ("n1", "n1", "n3", "n3", "n2", "n2", "n4", "n4")

    def test_the_common_label_of_racks_is_understood(self) -> None:
        nodes = {
            name: NodeView(
                name,
                {"topology.kubernetes.io/rack": rack},
                (),
                False,
                True,
                None,
                "",
                None,
                amounts(),
            )
            for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b"))
        }
        found = plan_gang([group("worker", 2, 4)], nodes, gpus(n1=4, n2=4, n3=4))
        assert nodes_of(found) == ("n2", "n3")

    def test_roles_of_one_gang_share_a_rack(self) -> None:
        free = {"a1": amounts(8, 8), "b1": amounts(8, 16), "c1": amounts(0, 64)}
        racks = {"a1": "a", "b1": "b", "c1": "c"}
        found = place([group("chief", 1, 0, 8), group("worker", 1, 8, 8)], free, racks)
        assert (nodes_of(found, "chief"), nodes_of(found)) == (("b1",), ("b1",))


class TestAccelerators:
    def test_a_gang_without_them_leaves_their_nodes_alone(self) -> None:
        free = {"gpu": amounts(8, 16), "plain-1": amounts(0, 8), "plain-2": amounts(0, 8)}
        assert (
            nodes_of(place([group("worker", 4, 0, 4)], free)) == ("plain-1",) * 2 + ("plain-2",) * 2
        )

    def test_unless_it_fits_nowhere_else(self) -> None:
        free = {"gpu": amounts(8, 16), "plain": amounts(0, 8)}
        assert nodes_of(place([group("worker", 4, 0, 4)], free)) == ("gpu",) * 4


class TestSeveralRoles:
    def test_the_largest_ranks_go_first(self) -> None:
        free = {"a": amounts(8), "b": amounts(2)}
        found = place([group("small", 2, 1), group("large", 1, 8)], free)
        assert (nodes_of(found, "small"), nodes_of(found, "large")) == (("b", "b"), ("a",))

    def test_a_gang_that_needs_a_mix_on_each_node_is_found(self) -> None:
        free = {"a": amounts(5, 5), "b": amounts(5, 5)}
        roles = [group("x", 2, 3, 1), group("y", 2, 2, 4)]
        found = place(roles, free)
        assert sorted(nodes_of(found, "x")) == sorted(nodes_of(found, "y")) == ["a", "b"]

    def test_each_role_keeps_to_its_own_constraints(self) -> None:
        nodes = {"a": node("a"), "b": node("b", taint=Taint("k", "v", "NoSchedule"))}
        tolerant = NodeConstraints.of({"spec": {"tolerations": [{"operator": "Exists"}]}}, None)
        roles = [
            RankGroup("plain", 1, amounts(4), NodeConstraints()),
            RankGroup("tolerant", 1, amounts(2), tolerant),
        ]
        found = plan_gang(roles, nodes, gpus(a=4, b=2))
        assert (nodes_of(found, "plain"), nodes_of(found, "tolerant")) == (("a",), ("b",))

    def test_roles_keep_their_order(self) -> None:
        found = place([group("z", 1, 1), group("a", 1, 1)], gpus(n=2))
        assert isinstance(found, Placed)
        assert list(found.nodes_by_role) == ["z", "a"]


class TestNoPlace:
    def refused(self, found: Placed | NoPlace) -> NoPlace:
        assert isinstance(found, NoPlace), found
        return found

    def test_nodes_are_counted_by_reason(self) -> None:
        nodes = {
            **{f"down-{i}": node(f"down-{i}", ready=False) for i in range(2)},
            **{f"up-{i}": node(f"up-{i}") for i in range(3)},
        }
        free = {f"up-{i}": amounts(i + 2) for i in range(3)}
        found = self.refused(plan_gang([group("worker", 2, 8)], nodes, free))
        assert found.message == (
            "0/5 nodes have room for rank worker-0 of 2: "
            "3 insufficient nvidia.com/gpu (needs 8, most free 4), 2 node(s) not ready"
        )
        assert found.fitting == 0

    def test_a_node_that_lacks_several_resources_counts_for_each(self) -> None:
        found = self.refused(place([group("worker", 1, 2, 2)], {"a": amounts(1, 1)}))
        assert found.message.endswith(
            ": 1 insufficient cpu (needs 2, most free 1), "
            "1 insufficient nvidia.com/gpu (needs 2, most free 1)"
        )

    def test_ranks_that_fit_beside_the_one_that_does_not_are_counted(self) -> None:
        found = self.refused(place([group("worker", 3, 4)], gpus(a=4, b=7)))
        assert found.message == (
            "0/2 nodes have room for rank worker-2 of 3: 2 insufficient nvidia.com/gpu "
            "(needs 4, most free 3); 2 of 3 ranks would fit"
        )
        assert found.fitting == 2

    def test_the_gang_is_not_placed_in_part(self) -> None:
        found = self.refused(place([group("a", 1, 1), group("b", 2, 4)], gpus(x=5)))
        assert "rank b-1 of 2" in found.message
        assert found.fitting == 2

    def test_excluded_nodes_get_no_rank(self) -> None:
        found = place([group("worker", 1, 1)], gpus(a=1, b=8), excluded=("a", "gone"))
        assert nodes_of(found) == ("b",)
        refused = self.refused(place([group("worker", 1, 1)], gpus(a=1), excluded=("a",)))
        assert refused.message.endswith(": 1 node(s) left out for this job for now")

    def test_without_nodes(self) -> None:
        found = self.refused(place([group("worker", 1, 1)], {}))
        assert found.message == ("0/0 nodes have room for rank worker-0 of 1: there are no nodes")

    def test_a_node_whose_free_resources_are_unknown_has_none(self) -> None:
        assert self.refused(plan_gang([group("worker", 1, 1)], {"a": node("a")}, {})).fitting == 0

    def test_over_committed_nodes_take_nothing(self) -> None:
        assert self.refused(place([group("worker", 1, 1)], gpus(a=-4))).fitting == 0

    def test_a_message_stays_short_however_many_reasons_there_are(self) -> None:
        nodes = {
            f"n{i}": node(f"n{i}", taint=Taint("owner", f"team-{i}", "NoSchedule"))
            for i in range(500)
        }
        found = self.refused(plan_gang([group("worker", 1, 1)], nodes, {}))
        assert found.message.count("untolerated taint") == MAX_REASONS
        assert found.message.endswith(f"and {500 - MAX_REASONS} more reasons")


@pytest.mark.parametrize("requests", [Resources(), Resources({"cpu": 0})])
def test_ranks_that_ask_for_nothing_go_anywhere(requests: Resources) -> None:
    ranks = RankGroup("worker", 3, requests, NodeConstraints())
    assert nodes_of(plan_gang([ranks], {"a": node("a")}, {})) == ("a",) * 3
