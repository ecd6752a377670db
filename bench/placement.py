"""How well and how fast gangs are placed: ``python bench/placement.py [--nodes N] [--ranks N]``.

A cluster of racks of 16 nodes with 8 accelerators each, partly in use (seeded), and gangs of
several shapes on it. For each it prints what the placement uses beside the least possible:

- racks and nodes: what the most demanding role alone needs at least;
- stranded: accelerators left free on the nodes used, of all their accelerators.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from goodput_operator import constants as c
from goodput_operator.domain.model import NodeView
from goodput_operator.domain.placement.constraints import NodeConstraints
from goodput_operator.domain.placement.gang import Placed, RankGroup, plan_gang
from goodput_operator.domain.resources import Resources

GPU = "nvidia.com/gpu"
RACK_SIZE = 16
NODE = Resources.parse({"cpu": 96, "memory": "1Ti", GPU: 8, "pods": 110})


@dataclass(frozen=True)
class Cluster:
    """Nodes and what is free on them."""

    nodes: dict[str, NodeView]
    free: dict[str, Resources]


def build_cluster(size: int, seed: int) -> Cluster:
    """A cluster of which about half the accelerators are free, in pieces."""
    rng = random.Random(seed)
    nodes, free = {}, {}
    for i in range(size):
        name = f"node-{i}"
        labels = {c.LABEL_RACK: f"rack-{i // RACK_SIZE}", "pool": "gpu"}
        nodes[name] = NodeView(name, labels, (), False, True, None, "", None, NODE)
        used = {GPU: rng.choice((0, 0, 2, 4, 8)), "cpu": rng.randrange(20), "pods": 3}
        free[name] = NODE - Resources.parse(used)
    return Cluster(nodes, free)


def group(role: str, count: int, gpus: int, cpu: int) -> RankGroup:
    """Ranks of one role on the nodes of the pool."""
    requests = Resources.parse({"cpu": cpu, "memory": "8Gi", GPU: gpus, "pods": 1})
    template = {"spec": {"nodeSelector": {"pool": "gpu"}}}
    return RankGroup(role, count, requests, NodeConstraints.of(template, None))


def gangs(ranks: int) -> dict[str, list[RankGroup]]:
    """The shapes of gang that are placed."""
    tenth = max(1, ranks // 10)
    return {
        "1 GPU each": [group("worker", ranks, 1, 4)],
        "4 GPUs each": [group("worker", ranks, 4, 16)],
        "8 GPUs each": [group("worker", ranks, 8, 32)],
        "small, one rack": [group("worker", 16, 4, 16)],
        "chief and workers": [group("chief", 1, 0, 4), group("worker", ranks - 1, 8, 32)],
        "three roles": [
            group("chief", 1, 0, 4),
            group("server", tenth, 2, 14),
            group("worker", ranks - tenth - 1, 4, 16),
        ],
        "too large": [group("worker", ranks * 20, 8, 32)],
        "too large, two roles": [group("a", ranks, 8, 32), group("b", ranks * 10, 4, 16)],
    }


def fewest(wanted: int, sizes: Sequence[int]) -> int:
    """Of bins of these sizes, the fewest that hold so much."""
    bins = 0
    for size in sorted(sizes, reverse=True):
        if wanted <= 0:
            break
        wanted, bins = wanted - size, bins + 1
    return bins


def bounds(groups: list[RankGroup], cluster: Cluster) -> tuple[int, int]:
    """Racks and nodes that the largest role alone needs at least."""
    racks, nodes = 0, 0
    for ranks in groups:
        on_racks: Counter[str] = Counter()
        on_nodes = []
        for name, free in cluster.free.items():
            here = ranks.requests.times_in(free) or 0
            on_racks[cluster.nodes[name].labels[c.LABEL_RACK]] += here
            on_nodes.append(here)
        racks = max(racks, fewest(ranks.count, list(on_racks.values())))
        nodes = max(nodes, fewest(ranks.count, on_nodes))
    return racks, nodes


def report(label: str, groups: list[RankGroup], cluster: Cluster) -> None:
    """Place one gang and print a line about it."""
    start = time.perf_counter()
    found = plan_gang(groups, cluster.nodes, cluster.free)
    milliseconds = (time.perf_counter() - start) * 1000
    size = sum(group.count for group in groups)
    if not isinstance(found, Placed):
        print(f"{label:22} {size:7} {milliseconds:8.0f}  {found.message}")
        return
    used = {node for nodes in found.nodes_by_role.values() for node in nodes}
    racks = {cluster.nodes[node].labels[c.LABEL_RACK] for node in used}
    wanted = sum(group.requests.get(GPU) * group.count for group in groups)
    stranded = sum(cluster.free[node].get(GPU) for node in used) - wanted
    least_racks, least_nodes = bounds(groups, cluster)
    print(
        f"{label:22} {size:7} {milliseconds:8.0f}"
        f"  {len(racks):4} racks (at least {least_racks}),"
        f" {len(used):4} nodes (at least {least_nodes}),"
        f" stranded {stranded / (len(used) * NODE.get(GPU)):.1%}"
    )


def main() -> None:
    """Print one line for each shape of gang."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cluster = build_cluster(options.nodes, options.seed)
    print(f"{'gang':22} {'ranks':>7} {'ms':>8}  on {options.nodes} nodes")
    for label, groups in gangs(options.ranks).items():
        report(label, groups, cluster)


if __name__ == "__main__":
    main()
