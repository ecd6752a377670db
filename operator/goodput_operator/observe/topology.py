"""A topology assignment of Kueue: how many pods of a pod set go to which nodes, in their order.

Its encoding (``pkg/util/tas`` there) says once what many domains have in common: slices of domains,
of which each level's value and the count are one for all, or one each with a common prefix and
suffix.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from goodput_operator.domain.model import TopologyDomain
from goodput_operator.observe import raw as r

T = TypeVar("T")


def parse_topology(raw: Mapping[str, Any]) -> tuple[TopologyDomain, ...]:
    """The domains of a ``topologyAssignment``. Raises ValueError when it cannot be read.

    Where the lowest level is the host name, Kueue gives that level alone.
    """
    levels = raw.get("levels") or ()
    domains = []
    for part in r.mappings(raw, "slices"):
        size = r.integer(part, "domainCount") or 0
        values = [_values(each, size) for each in r.mappings(part, "valuesPerLevel")]
        if len(values) != len(levels):
            raise ValueError(f"{len(values)} values for {len(levels)} levels")
        counts = _counts(r.mapping(part, "podCounts"), size)
        for place, count in zip(zip(*values, strict=True), counts, strict=True):
            domains.append(TopologyDomain(tuple(zip(levels, place, strict=True)), count))
    return tuple(domains)


def _values(raw: Mapping[str, Any], size: int) -> list[str]:
    universal = r.text(raw, "universal")
    if universal:
        return [universal] * size
    individual = r.mapping(raw, "individual")
    prefix, suffix = r.text(individual, "prefix"), r.text(individual, "suffix")
    return _one_each([f"{prefix}{root}{suffix}" for root in individual.get("roots") or ()], size)


def _counts(raw: Mapping[str, Any], size: int) -> list[int]:
    universal = r.integer(raw, "universal")
    if universal is not None:
        return [universal] * size
    return _one_each([int(count) for count in raw.get("individual") or ()], size)


def _one_each(values: list[T], size: int) -> list[T]:
    if len(values) != size:
        raise ValueError(f"{len(values)} values for {size} domains")
    return values
