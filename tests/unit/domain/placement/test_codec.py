"""How a placement is stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.status import Placement, RolePlacement
from goodput_operator.domain.placement import codec
from goodput_operator.domain.placement.gang import Placed


def store(placed: Placed) -> Placement:
    nodes, roles = codec.encode(placed)
    return Placement(attempt=1, nodes=nodes, roles=roles, committed_at="2026-01-01T00:00:00Z")


NODES = st.lists(st.sampled_from([f"node-{i}" for i in range(5)]), max_size=30).map(tuple)


@given(st.dictionaries(st.sampled_from(["chief", "worker", "ps"]), NODES))
def test_decodes_what_it_encodes(nodes_by_role: dict[str, tuple[str, ...]]) -> None:
    assert codec.decode(store(Placed(nodes_by_role))) == nodes_by_role


def test_runs_name_nodes_by_their_place_in_the_table() -> None:
    placed = Placed({"chief": ("b",), "worker": ("b", "b", "a", "a", "a", "b")})
    nodes, roles = codec.encode(placed)
    assert nodes == ("b", "a")
    assert roles == (
        RolePlacement(name="chief", nodes="0"),
        RolePlacement(name="worker", nodes="0*2,1*3,0"),
    )


def test_reads_the_form_of_the_api_documentation() -> None:
    placement = Placement(
        attempt=1,
        nodes=("x", "y", "z"),
        roles=(RolePlacement(name="worker", nodes="0*4,2*4"),),
        committed_at="2026-01-01T00:00:00Z",
    )
    assert codec.decode(placement) == {"worker": ("x",) * 4 + ("z",) * 4}


@pytest.mark.parametrize(
    "runs",
    ["1", "-1", "x", "0*", "0*x", "0*-2", "0*0", "0*10001", "0*9999999999", "0**2", ",", "0,"],
)
def test_refuses_what_it_has_not_written(runs: str) -> None:
    placement = Placement(
        attempt=1,
        nodes=("x",),
        roles=(RolePlacement(name="worker", nodes=runs),),
        committed_at="2026-01-01T00:00:00Z",
    )
    with pytest.raises(ValueError, match="placement of role worker"):
        codec.decode(placement)


@pytest.mark.parametrize(
    ("ranks", "per_node", "most_bytes"),
    [(1_000, 8, 5_000), (1_000, 1, 35_000), (10_000, 8, 45_000), (10_000, 1, 350_000)],
)
def test_size_of_the_stored_form(ranks: int, per_node: int, most_bytes: int) -> None:
    """Node names of 24 characters; an object in etcd may have 1.5 MiB."""
    names = [f"gpu-node-{i:06d}.internal"[:24] for i in range(ranks)]
    placed = Placed({"worker": tuple(names[i // per_node] for i in range(ranks))})
    nodes, roles = codec.encode(placed)
    stored = json.dumps({"nodes": nodes, "roles": [role.model_dump() for role in roles]})
    assert len(stored) < most_bytes


@given(st.frozensets(st.tuples(st.sampled_from(["chief", "worker"]), st.integers(0, 9_999))))
def test_ranks_that_have_succeeded_are_remembered(ranks: frozenset[tuple[str, int]]) -> None:
    placement = store(Placed({"chief": ("a",), "worker": ("b",)}))
    noted = codec.with_succeeded(placement, ranks)
    assert codec.succeeded(noted) == ranks
    assert codec.decode(noted) == codec.decode(placement)
    assert codec.with_succeeded(noted, ranks) is noted


def test_ranges_of_ranks_are_short() -> None:
    placement = store(Placed({"worker": ("a",)}))
    ranks = {("worker", rank) for rank in range(10_000) if rank not in (4, 6)}
    assert codec.with_succeeded(placement, ranks).roles[0].succeeded == "0-3,5,7-9999"


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "0-10000", "1,,2", "1 - 2"])
def test_refuses_ranges_that_it_did_not_write(text: str) -> None:
    role = RolePlacement(name="worker", nodes="0", succeeded=text)
    placement = Placement(
        attempt=1, nodes=("a",), roles=(role,), committed_at="2026-01-01T00:00:00Z"
    )
    with pytest.raises(ValueError, match="succeeded"):
        codec.succeeded(placement)
