"""NodeHealths."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from goodput_operator.api.node_health import NodeHealthStatus
from goodput_operator.domain.model import NodeHealthView
from goodput_operator.observe import raw as r


def parse_node_health(raw: Mapping[str, Any]) -> NodeHealthView:
    """View of a NodeHealth. One that cannot be read stands for nothing, and is replaced."""
    try:
        status = NodeHealthStatus.model_validate(r.mapping(raw, "status"))
    except ValidationError:
        status = NodeHealthStatus()
    return NodeHealthView(
        name=r.text(raw, "metadata", "name"),
        uid=r.text(raw, "metadata", "uid"),
        resource_version=r.text(raw, "metadata", "resourceVersion"),
        status=status,
    )
