"""Kueue's encoding of a topology assignment, as its ``pkg/util/tas`` reads it."""

from typing import Any

import pytest

from goodput_operator.observe.topology import parse_topology

HOST = "kubernetes.io/hostname"


def individual(*roots: str, **common: str) -> dict[str, Any]:
    return {"individual": {"roots": list(roots), **common}}


def slice_of(count: int, counts: dict[str, Any], *values: dict[str, Any]) -> dict[str, Any]:
    return {"domainCount": count, "valuesPerLevel": list(values), "podCounts": counts}


@pytest.mark.parametrize(
    ("levels", "slices", "expected"),
    [
        (
            [HOST],
            [slice_of(2, {"universal": 3}, individual("1", "2", prefix="n", suffix=".x"))],
            [(((HOST, "n1.x"),), 3), (((HOST, "n2.x"),), 3)],
        ),
        (
            ["block", "rack"],
            [
                slice_of(2, {"individual": [1, 2]}, {"universal": "b1"}, individual("r2", "r1")),
                slice_of(1, {"universal": 4}, {"universal": "b2"}, {"universal": "r1"}),
            ],
            [
                ((("block", "b1"), ("rack", "r2")), 1),
                ((("block", "b1"), ("rack", "r1")), 2),
                ((("block", "b2"), ("rack", "r1")), 4),
            ],
        ),
    ],
)
def test_domains_are_read_in_their_order(
    levels: list[str], slices: list[dict[str, Any]], expected: list[Any]
) -> None:
    assert list(parse_topology({"levels": levels, "slices": slices})) == expected


@pytest.mark.parametrize(
    "broken",
    [
        slice_of(2, {"universal": 1}, individual("n1")),
        slice_of(2, {"individual": [1]}, individual("n1", "n2")),
        slice_of(1, {}, individual("n1")),
        slice_of(1, {"universal": 1}),
        slice_of(1, {"universal": 1}, individual("n1"), individual("n1")),
    ],
)
def test_what_is_not_whole_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="values for"):
        parse_topology({"levels": [HOST], "slices": [broken]})
