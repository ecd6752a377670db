"""Nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from goodput_operator.domain.model import BadCondition, NodeView, Taint
from goodput_operator.domain.resources import Resources, parse_quantity
from goodput_operator.observe import raw as r

MAX_MESSAGE = 200
"""Characters of a condition's message: some hold a whole log line."""


def parse_node(raw: Mapping[str, Any], bad_conditions: Sequence[tuple[str, str]] = ()) -> NodeView:
    """View of a node. One that has not reported yet is not ready.

    ``bad_conditions`` are types of conditions with the status in which they make the node unfit.
    """
    conditions = r.conditions(raw)
    ready = conditions.get("Ready", {})
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
        bad=_bad(conditions, bad_conditions),
        uid=r.text(raw, "metadata", "uid"),
        system_uuid=r.text(raw, "status", "nodeInfo", "systemUUID"),
    )


def _bad(
    conditions: Mapping[str, Mapping[str, Any]], wanted: Sequence[tuple[str, str]]
) -> BadCondition | None:
    """The first that holds now. What it was before does not matter, nor for how long it holds."""
    for type_, status in wanted:
        found = conditions.get(type_)
        if found is not None and r.text(found, "status") == status:
            message = r.text(found, "message") or r.text(found, "reason")
            return BadCondition(type_, message[:MAX_MESSAGE])
    return None


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
