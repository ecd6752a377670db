"""Kueue's ResourceFlavors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodput_operator.observe import raw as r


@dataclass(frozen=True, slots=True)
class FlavorView:
    """What a flavour adds to the pods that are admitted on it."""

    name: str
    node_labels: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


def parse_flavor(raw: Mapping[str, Any]) -> FlavorView:
    """View of a ResourceFlavor."""
    return FlavorView(
        name=r.text(raw, "metadata", "name"),
        node_labels=r.strings(raw, "spec", "nodeLabels"),
        tolerations=tuple(dict(item) for item in r.mappings(raw, "spec", "tolerations")),
    )
