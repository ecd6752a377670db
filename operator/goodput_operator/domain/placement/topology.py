"""Places a gang where Kueue's topology-aware scheduling has put it.

Kueue counts what its assignment says as taken, so ranks go there and nowhere else: so many to each
domain, in its order, on nodes of the domain that match and have room. A domain is a node, or a rack
whose nodes Kueue has not told apart.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from goodput_operator.domain.model import NodeView, TopologyDomain
from goodput_operator.domain.placement.gang import NoPlace, Placed, RankGroup, plan_gang
from goodput_operator.domain.resources import Resources

_Labels = tuple[tuple[str, str], ...]


def plan_in_topology(
    groups: Sequence[RankGroup],
    topology: Mapping[str, tuple[TopologyDomain, ...]],
    nodes: Mapping[str, NodeView],
    free: Mapping[str, Resources],
    excluded: Collection[str] = (),
    last: Mapping[str, int] | None = None,
) -> Placed | NoPlace:
    """As ``plan_gang``, within the domains of each role; roles without any come last."""
    wanted: dict[_Labels, list[RankGroup]] = defaultdict(list)
    for group in groups:
        domains = topology.get(group.role, ())
        assigned = sum(domain.ranks for domain in domains)
        if domains and assigned != group.count:
            return NoPlace(
                f"Kueue's topology assignment has places for {assigned} ranks of role "
                f"{group.role}, not for {group.count}",
                0,
            )
        for domain in domains or (TopologyDomain((), group.count),):
            wanted[domain.labels].append(replace(group, count=domain.ranks))
    left, places = dict(free), dict[tuple[_Labels, str], tuple[str, ...]]()
    members = _members(nodes.values(), wanted)
    for labels in sorted(wanted, key=lambda each: not each):
        inside = {node.name: node for node in members[labels]}
        outcome = plan_gang(wanted[labels], inside, left, excluded, last)
        if isinstance(outcome, NoPlace):
            fitting = sum(map(len, places.values())) + outcome.fitting
            return replace(outcome, message=_told(labels, outcome.message), fitting=fitting)
        for group in wanted[labels]:
            places[labels, group.role] = outcome.nodes_by_role[group.role]
            for node in outcome.nodes_by_role[group.role]:
                left[node] = left[node] - group.requests
    return Placed(
        {
            group.role: tuple(
                node
                for labels in _order(topology.get(group.role, ()))
                for node in places[labels, group.role]
            )
            for group in groups
        }
    )


def _order(domains: tuple[TopologyDomain, ...]) -> list[_Labels]:
    return [domain.labels for domain in domains] or [()]


def _members(
    nodes: Iterable[NodeView], wanted: Iterable[_Labels]
) -> Mapping[_Labels, list[NodeView]]:
    """The nodes of each domain, looking at each node once for each set of levels."""
    members: dict[_Labels, list[NodeView]] = {labels: [] for labels in wanted}
    levels = {tuple(key for key, _ in labels) for labels in members}
    for node in nodes:
        for keys in levels:
            labels = tuple((key, node.labels.get(key, "")) for key in keys)
            if labels in members:
                members[labels].append(node)
    return members


def _told(labels: _Labels, message: str) -> str:
    if not labels:
        return message
    place = ", ".join(f"{key}={value}" for key, value in labels)
    return f"Kueue's topology assignment says {place}, but there {message}"
