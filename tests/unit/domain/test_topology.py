"""Under topology-aware scheduling ranks go where Kueue says, and a lost node's place is Kueue's."""

from dataclasses import replace

from goodput_operator import constants as c
from goodput_operator.api.status import Phase, Restarts
from goodput_operator.domain.model import JobKey, TopologyDomain
from goodput_operator.domain.placement import codec
from tests.unit.domain.world import World, job_spec

RACK = "topology.kubernetes.io/rack"


def on(*nodes: str) -> tuple[TopologyDomain, ...]:
    return tuple(TopologyDomain((("kubernetes.io/hostname", name),), 1) for name in nodes)


def assign(world: World, key: JobKey, *domains: TopologyDomain, unhealthy: str = "") -> None:
    """What Kueue writes."""
    workload = world.workload(key)
    world.workloads[workload.name] = replace(
        workload,
        assignments=tuple(replace(each, topology=domains) for each in workload.assignments),
        unhealthy_nodes=(unhealthy,) if unhealthy else (),
    )


def world_of(*racks: str, gpus: int = 1) -> World:
    """Nodes n1, n2, …, each in its rack, and a Kueue that assigns nothing by itself."""
    world = World(quota=0)
    for number, rack in enumerate(racks, 1):
        name = f"n{number}"
        world.add_nodes(name, gpus=gpus)
        labels = {"kubernetes.io/hostname": name, RACK: rack}
        world.nodes[name] = replace(world.nodes[name], labels=labels)
    return world


def admit(world: World, key: JobKey, *domains: TopologyDomain) -> None:
    """Admission and assignment are one write of Kueue."""
    world.run(key)
    world.quota = 1000
    world.play()
    assign(world, key, *domains)
    world.run(key)


def places(world: World, key: JobKey) -> list[str]:
    placement = world.job(key).placement
    assert placement is not None
    return list(codec.decode(placement)["worker"])


def test_ranks_go_to_the_nodes_in_the_order_that_kueue_says() -> None:
    world = world_of("a", "a", "a", "a")
    key = world.submit(spec=job_spec(3))
    admit(world, key, *on("n4", "n1", "n3"))
    assert world.job(key).phase is Phase.RUNNING
    assert places(world, key) == ["n4", "n1", "n3"]


def test_within_a_rack_that_kueue_has_chosen_the_nodes_are_ours() -> None:
    world = world_of("a", "b", "a", "b", gpus=2)
    key = world.submit(spec=job_spec(4))
    rack = TopologyDomain(((RACK, "b"),), 3)
    admit(world, key, rack, TopologyDomain(((RACK, "a"),), 1))
    assert sorted(places(world, key)[:3]) in (["n2", "n2", "n4"], ["n2", "n4", "n4"])
    assert places(world, key)[3] in ("n1", "n3")


def test_a_lost_node_waits_for_the_node_that_kueue_puts_in_its_place() -> None:
    world = world_of("a", "a", "a", "a")
    key = world.submit()
    admit(world, key, *on("n1", "n2"))
    world.lose("n1")
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RESTARTING, 1)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES
    assign(world, key, *on("n1", "n2"), unhealthy="n1")
    world.run(key)
    assert world.job(key).placement is None
    assign(world, key, *on("n2", "n4"))
    world.run(key)
    assert (world.job(key).phase, places(world, key)) == (Phase.RUNNING, ["n2", "n4"])
    assert world.job(key).restarts == Restarts(infrastructure=1)


def test_a_node_that_kueue_is_replacing_is_not_used_though_it_is_back() -> None:
    world = world_of("a", "a", "a")
    key = world.submit()
    admit(world, key, *on("n1", "n2"))
    world.lose("n1")
    world.run(key)
    world.nodes["n1"] = replace(world.nodes["n1"], ready=True)
    assign(world, key, *on("n1", "n2"), unhealthy="n1")
    world.run(key)
    assert world.job(key).placement is None


def test_no_replacement_within_the_hold_and_the_quota_goes_back() -> None:
    world = world_of("a", "a", "a")
    key = world.submit()
    admit(world, key, *on("n1", "n2"))
    world.lose("n1")
    world.run(key)
    world.now += world.policy.hold_seconds + 1
    world.run(key)
    assert c.EventReason.QUOTA_RELEASED in world.reasons(key)
    assert not world.workload(key).has_admission


def test_an_eviction_instead_of_a_replacement_queues_the_job_again() -> None:
    world = world_of("a", "a", "a", "a")
    key = world.submit()
    admit(world, key, *on("n1", "n2"))
    world.lose("n1")
    world.quota = 0
    world.run(key)
    world.evict(key, "NodeFailures")
    world.now += world.policy.node_gone_seconds + 1
    world.run(key)
    assert world.job(key).phase is Phase.QUEUED
    assert world.job(key).attempt == 1
    assert world.job(key).restarts == Restarts(infrastructure=1)
    world.quota = 1000
    world.play()
    assign(world, key, *on("n3", "n4"))
    world.run(key)
    assert (world.job(key).phase, places(world, key)) == (Phase.RUNNING, ["n3", "n4"])


def test_a_lost_rank_alone_is_not_replaced_where_kueue_has_not_put_it() -> None:
    world = world_of("a", "a", "a")
    spec = job_spec(2, faultTolerance={"restartScope": "Failed"})
    key = world.submit(spec=spec)
    admit(world, key, *on("n1", "n2"))
    world.lose("n2")
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RESTARTING, 1)
    assign(world, key, *on("n1", "n3"))
    world.run(key)
    assert (world.job(key).attempt, places(world, key)) == (2, ["n1", "n3"])
