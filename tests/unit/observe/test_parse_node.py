from typing import Any

import pytest

from goodput_operator.domain.model import Taint
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
