"""Kueue's topology-aware scheduling: ranks go where it says, and it replaces a lost node."""

from __future__ import annotations

import pytest

from tests.integration.cluster import (
    GPU,
    NO_RESTARTS,
    TENANT_LABEL,
    Manifest,
    Tenant,
    kueue,
)
from tests.integration.kueue.conftest import is_true, workload

HOST, RACK = "kubernetes.io/hostname", "goodput.dev/rack"


def assigned(tenant: Tenant, job: str) -> list[str]:
    """The host of each rank, decoded from the Workload independently of the operator."""
    (pod_set,) = workload(tenant, job)["status"]["admission"]["podSetAssignments"]
    hosts: list[str] = []
    assert pod_set["topologyAssignment"]["levels"] == [HOST]
    for part in pod_set["topologyAssignment"]["slices"]:
        values, counts = part["valuesPerLevel"][0], part["podCounts"]
        one = values.get("individual", {})
        for index in range(part["domainCount"]):
            name = values.get("universal") or (
                one.get("prefix", "") + one["roots"][index] + one.get("suffix", "")
            )
            count = counts.get("universal") or counts["individual"][index]
            hosts += [name] * count
    return hosts


def hosts(tenant: Tenant, job: str) -> list[str]:
    """The node of each rank's pod, in the order of ranks."""
    pods = sorted(
        tenant.pods(job, tenant.status(job)["attempt"]),
        key=lambda pod: int(pod["metadata"]["labels"]["goodput.dev/rank"]),
    )
    return [pod["spec"]["nodeName"] for pod in pods]


def racks(tenant: Tenant, names: list[str]) -> set[str]:
    nodes = tenant.get("nodes")
    found = {each["metadata"]["name"]: each["metadata"]["labels"][RACK] for each in nodes}
    return {found[name] for name in names}


def submit(tenant: Tenant, name: str, replicas: int) -> str:
    """A job whose ranks have to be in one rack."""
    annotation = {"kueue.x-k8s.io/podset-required-topology": RACK}
    return tenant.submit(name, replicas, annotations=annotation)


@pytest.fixture
def topology(tenant: Tenant) -> Tenant:
    """A tenant with two racks of three nodes, and a queue on a flavour with that topology."""
    for number in range(2):
        tenant.sandbox.add_simulated_nodes(
            3,
            prefix=tenant.name,
            accelerators=1,
            labels={TENANT_LABEL: tenant.name, RACK: f"{tenant.name}-rack-{number}"},
        )
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    quotas = [(GPU, "6"), ("cpu", "10k"), ("memory", "10Ti")]
    flavor = {"name": tenant.name, "resources": [{"name": n, "nominalQuota": q} for n, q in quotas]}
    groups: list[Manifest] = [{"coveredResources": [n for n, _ in quotas], "flavors": [flavor]}]
    chosen = {"nodeLabels": {TENANT_LABEL: tenant.name}, "topologyName": tenant.name}
    tenant.apply(kueue("Topology", tenant.name, {"levels": levels}))
    tenant.apply(
        kueue("ResourceFlavor", tenant.name, chosen),
        kueue("ClusterQueue", tenant.name, {"namespaceSelector": {}, "resourceGroups": groups}),
        kueue("LocalQueue", "main", {"clusterQueue": tenant.name}, tenant.name),
    )
    return tenant


def test_ranks_are_where_the_topology_assignment_has_them_in_its_order(topology: Tenant) -> None:
    first = submit(topology, "first", 2)
    topology.wait(first, "Running")
    second = submit(topology, "second", 3)
    topology.wait(second, "Running")
    for job in (first, second):
        assert hosts(topology, job) == assigned(topology, job)
        assert len(racks(topology, hosts(topology, job))) == 1
    assert topology.nodes_of(first).isdisjoint(topology.nodes_of(second))


def test_a_lost_node_is_replaced_by_kueue_and_the_gang_follows(topology: Tenant) -> None:
    job = submit(topology, "job", 2)
    topology.wait(job, "Running")
    before = hosts(topology, job)
    topology.sandbox.simulated.kill(before[0])
    status = topology.wait(job, "Running", 60, attempt=2)
    after = hosts(topology, job)
    assert after == assigned(topology, job)
    assert before[0] not in after
    assert racks(topology, after) == racks(topology, before), "the replacement is in the same rack"
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    assert not is_true(workload(topology, job), "Evicted")


def test_without_a_node_to_replace_it_kueue_moves_the_gang_to_another_rack(
    topology: Tenant,
) -> None:
    job = submit(topology, "job", 3)
    topology.wait(job, "Running")
    before = hosts(topology, job)
    topology.sandbox.simulated.kill(before[1])
    status = topology.wait(job, "Running", 90, attempt=2)
    after = hosts(topology, job)
    assert after == assigned(topology, job)
    assert racks(topology, after).isdisjoint(racks(topology, before))
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}


def test_a_lost_rack_is_one_restart_on_another(topology: Tenant) -> None:
    job = submit(topology, "job", 2)
    topology.wait(job, "Running")
    before = hosts(topology, job)
    for name in before:
        topology.sandbox.simulated.kill(name)
    status = topology.wait(job, "Running", 90, attempt=2)
    assert hosts(topology, job) == assigned(topology, job)
    assert set(hosts(topology, job)).isdisjoint(before)
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
