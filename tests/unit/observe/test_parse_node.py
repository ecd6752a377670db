from typing import Any

import pytest

from goodput_operator.domain.model import BadCondition, Taint
from goodput_operator.domain.resources import Resources
from goodput_operator.observe.node import parse_node


def node(**ready: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": {"goodput.dev/rack": "r1"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "8", "odd": "x"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {
                    "type": "Ready",
                    "status": "True",
                    "message": "kubelet is posting ready status",
                    "lastTransitionTime": "2026-01-31T08:00:00Z",
                    "lastHeartbeatTime": "2026-01-31T08:05:00Z",
                    **ready,
                },
            ],
        },
    }


def test_reads_a_node() -> None:
    view = parse_node(node())
    assert view.name == "n1"
    assert view.labels == {"goodput.dev/rack": "r1"}
    assert view.taints == (Taint("nvidia.com/gpu", "", "NoSchedule"),)
    assert view.ready
    assert not view.lost
    assert view.ready_since == 1769846400.0
    assert view.heartbeat_at == 1769846700.0
    assert view.ready_message == "kubelet is posting ready status"
    assert view.allocatable == Resources(
        {"cpu": 8_000, "memory": 1024**3 * 1000, "nvidia.com/gpu": 8_000}
    )
    assert not view.unschedulable
    assert not view.deleting


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_lost(status: str) -> None:
    view = parse_node(node(status=status, message="", reason="NodeStatusUnknown"))
    assert not view.ready
    assert view.lost
    assert view.ready_message == "NodeStatusUnknown"


def test_a_node_that_has_not_reported_is_not_ready() -> None:
    view = parse_node({"metadata": {"name": "n1"}})
    assert not view.ready
    assert view.ready_since is None
    assert view.ready_message == "the node has not reported a Ready condition"


def test_cordoned_and_deleted() -> None:
    raw = node()
    raw["spec"]["unschedulable"] = True
    raw["metadata"]["deletionTimestamp"] = "2026-01-31T08:00:00Z"
    view = parse_node(raw)
    assert view.unschedulable
    assert view.deleting


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": [], "spec": {"taints": ["x", None]}, "status": {"conditions": 3}},
        {"status": {"allocatable": {"cpu": None}, "conditions": [None, {"type": 4}]}},
    ],
)
def test_wrong_types_read_as_empty(raw: dict[str, Any]) -> None:
    view = parse_node(raw)
    assert (view.name, view.ready, view.taints) == ("", False, ())
    assert view.allocatable.is_zero


BAD = (("KernelDeadlock", "True"), ("AcceleratedHardwareReady", "False"))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "KernelDeadlock", "status": "False", "message": "no deadlock"}], None),
        ([{"type": "KernelDeadlock", "status": "Unknown"}], None),
        ([{"type": "AcceleratedHardwareReady", "status": "True"}], None),
        ([{"type": "GPUMissing", "status": "True"}], None),
        (
            [{"type": "KernelDeadlock", "status": "True", "message": "stuck"}],
            BadCondition("KernelDeadlock", "stuck"),
        ),
        (
            [
                {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79"},
                {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"},
            ],
            BadCondition("KernelDeadlock", "DockerHung"),
        ),
        (
            [{"type": "AcceleratedHardwareReady", "status": "False", "message": "x" * 999}],
            BadCondition("AcceleratedHardwareReady", "x" * 200),
        ),
        ([None, 3, {"status": "True"}], None),
    ],
)
def test_the_conditions_that_make_a_node_unfit(conditions: list[Any], expected: Any) -> None:
    raw = node()
    raw["status"]["conditions"] += conditions
    assert parse_node(raw, BAD).bad == expected
    assert parse_node(raw).bad is None


def test_reads_what_tells_a_node_from_its_successor() -> None:
    raw = node()
    raw["metadata"]["uid"] = "u1"
    raw["status"]["nodeInfo"] = {"systemUUID": "m1"}
    view = parse_node(raw)
    assert (view.uid, view.system_uuid) == ("u1", "m1")
    assert (parse_node(node()).uid, parse_node(node()).system_uuid) == ("", "")
