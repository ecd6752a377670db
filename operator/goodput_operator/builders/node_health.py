"""A NodeHealth: first the object, owned by its node, then its status."""

from typing import Any

from goodput_operator import constants as c
from goodput_operator.api.node_health import NodeHealthStatus


def build_node_health(node: str, node_uid: str) -> dict[str, Any]:
    """The object, without its status. It goes with its node, also when no operator runs."""
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.NODE_HEALTH_KIND,
        "metadata": {
            "name": node,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
            ],
        },
    }


def build_status(node: str, resource_version: str, status: NodeHealthStatus) -> dict[str, Any]:
    """Body that replaces the status of the version that it was made from."""
    return {
        "apiVersion": c.API_VERSION,
        "kind": c.NODE_HEALTH_KIND,
        "metadata": {"name": node, "resourceVersion": resource_version},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
