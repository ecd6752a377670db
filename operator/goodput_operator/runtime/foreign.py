"""What pods that are not ours use of each node: only sums are kept."""

from collections.abc import Iterable, Mapping
from typing import Any

from goodput_operator.domain.resources import Resources
from goodput_operator.observe.pod import usage_of
from goodput_operator.observe.raw import text

_NOTHING = Resources()


class ForeignUsage:
    """Sums of effective requests by node, kept up to date pod by pod."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], tuple[str, Resources]] = {}
        self._nodes: dict[str, Resources] = {}

    @property
    def by_node(self) -> Mapping[str, Resources]:
        """Effective requests of all bound pods that have not ended, by node."""
        return self._nodes

    def put(self, raw: Mapping[str, Any]) -> bool:
        """Take a pod over as it is now; whether room came free."""
        key = _key(raw)
        usage = usage_of(raw)
        before = self._pods.get(key)
        if usage == before:
            return False
        freed = self._drop(key)
        if usage is not None:
            self._pods[key] = usage
            node, requests = usage
            self._nodes[node] = self._nodes.get(node, _NOTHING) + requests
        return freed

    def remove(self, raw: Mapping[str, Any]) -> bool:
        """A pod is gone; whether room came free."""
        return self._drop(_key(raw))

    def replace(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Start over from a list of all pods."""
        self._pods.clear()
        self._nodes.clear()
        for raw in pods:
            self.put(raw)

    def _drop(self, key: tuple[str, str]) -> bool:
        before = self._pods.pop(key, None)
        if before is None:
            return False
        node, requests = before
        left = self._nodes[node] - requests
        if left.is_zero:
            del self._nodes[node]
        else:
            self._nodes[node] = left
        return True


def added(one: Mapping[str, Resources], other: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """What both take of each node; the second is small, as a rule empty."""
    if not other:
        return one
    return {**one, **{node: one.get(node, _NOTHING) + usage for node, usage in other.items()}}


def _key(raw: Mapping[str, Any]) -> tuple[str, str]:
    return text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
