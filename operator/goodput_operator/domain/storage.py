"""Frozen views of what a pod may mount: claims and the volumes behind them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    phase: str
    access_modes: frozenset[str]
    """What was asked for, and what its volume offers once it is bound."""
    volume: str | None
    """The PersistentVolume that it is bound to."""
    deleting: bool = False

    @property
    def shared(self) -> bool:
        """Whether pods on several nodes may mount it at once."""
        return not self.access_modes or bool(self.access_modes & {"ReadWriteMany", "ReadOnlyMany"})

    @property
    def single_pod(self) -> bool:
        """Whether one pod alone may mount it."""
        return "ReadWriteOncePod" in self.access_modes and not self.shared


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A PersistentVolume."""

    name: str
    claim: tuple[str, str] | None
    """Namespace and name of the claim that it is bound to."""
    node_terms: tuple[Mapping[str, Any], ...] | None
    """``nodeSelectorTerms`` of its node affinity, as they are; None: it can be used anywhere."""
