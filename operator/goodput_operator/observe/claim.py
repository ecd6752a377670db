"""PersistentVolumeClaims, and the PersistentVolumes that they are bound to."""

from collections.abc import Mapping
from typing import Any

from goodput_operator.domain.storage import ClaimView, VolumeView
from goodput_operator.observe import raw as r


def parse_claim(raw: Mapping[str, Any]) -> ClaimView:
    """View of a PersistentVolumeClaim."""
    modes = (r.at(raw, part, "accessModes") for part in ("spec", "status"))
    return ClaimView(
        namespace=r.text(raw, "metadata", "namespace"),
        name=r.text(raw, "metadata", "name"),
        phase=r.text(raw, "status", "phase"),
        access_modes=frozenset(mode for part in modes for mode in part or ()),
        volume=r.text(raw, "spec", "volumeName") or None,
        deleting=bool(r.text(raw, "metadata", "deletionTimestamp")),
    )


def parse_volume(raw: Mapping[str, Any]) -> VolumeView:
    """View of a PersistentVolume."""
    claim = r.mapping(raw, "spec", "claimRef")
    required = r.at(raw, "spec", "nodeAffinity", "required")
    terms = tuple(dict(term) for term in r.mappings(required, "nodeSelectorTerms"))
    return VolumeView(
        name=r.text(raw, "metadata", "name"),
        claim=(r.text(claim, "namespace"), r.text(claim, "name")) if claim else None,
        node_terms=terms if required is not None else None,
    )
