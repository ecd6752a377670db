"""Nodes."""

from collections.abc import Mapping
from typing import Any

from goodput_operator.domain.model import NodeView, Taint
from goodput_operator.domain.resources import Resources, parse_quantity
from goodput_operator.observe import raw as r


def parse_node(raw: Mapping[str, Any]) -> NodeView:
    """View of a node. One that has not reported yet is not ready."""
    ready = r.conditions(raw).get("Ready", {})
    return NodeView(
        name=r.text(raw, "metadata", "name"),
        labels=r.strings(raw, "metadata", "labels"),
        taints=tuple(
            Taint(r.text(taint, "key"), r.text(taint, "value"), r.text(taint, "effect"))
            for taint in r.mappings(raw, "spec", "taints")
        ),
        unschedulable=r.truth(raw, "spec", "unschedulable"),
        ready=r.text(ready, "status") == "True",
        ready_since=r.time(ready, "lastTransitionTime"),
        ready_message=_ready_message(ready),
        heartbeat_at=r.time(ready, "lastHeartbeatTime"),
        allocatable=_allocatable(r.mapping(raw, "status", "allocatable")),
        unknown=r.text(ready, "status") == "Unknown",
        deleting=bool(r.text(raw, "metadata", "deletionTimestamp")),
    )


def _ready_message(ready: Mapping[str, Any]) -> str:
    if not ready:
        return "the node has not reported a Ready condition"
    return r.text(ready, "message") or r.text(ready, "reason")


def _allocatable(raw: Mapping[str, Any]) -> Resources:
    amounts = {}
    for name, quantity in raw.items():
        try:
            amounts[name] = parse_quantity(quantity)
        except ValueError:
            continue  # What cannot be read is not offered.
    return Resources(amounts)
