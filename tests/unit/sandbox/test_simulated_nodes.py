"""What simulated nodes look like to placement."""

from dataclasses import replace

from goodput_sandbox.simulated import CPU_ONLY, H100, POWER_LABEL, RACK_LABEL, TPU_V5E, node_object


def test_racks_are_filled_in_order_and_are_power_domains() -> None:
    nodes = [node_object(replace(H100, nodes_per_rack=2), i) for i in range(4)]
    racks = [n["metadata"]["labels"][RACK_LABEL] for n in nodes]
    assert racks == ["gpu-rack-0", "gpu-rack-0", "gpu-rack-1", "gpu-rack-1"]
    assert [n["metadata"]["labels"][POWER_LABEL] for n in nodes] == racks


def test_kinds_of_nodes_do_not_share_racks() -> None:
    tpu, gpu = node_object(TPU_V5E, 0), node_object(H100, 0)
    assert tpu["metadata"]["labels"][RACK_LABEL] != gpu["metadata"]["labels"][RACK_LABEL]


def test_gpus_are_capacity_and_their_product_a_label() -> None:
    node = node_object(H100, 0)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}


def test_hosts_of_a_tpu_slice_share_a_node_pool() -> None:
    pools = [
        node_object(TPU_V5E, i)["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for i in range(8)
    ]
    assert pools == ["tpu-0"] * 4 + ["tpu-1"] * 4


def test_a_node_without_accelerators_has_none() -> None:
    assert set(node_object(CPU_ONLY, 3)["status"]["capacity"]) == {"cpu", "memory", "pods"}
