"""Claims and volumes out of raw JSON."""

import pytest

from goodput_operator.observe.claim import parse_claim, parse_volume


def test_a_claim_has_the_modes_that_were_asked_for_and_those_of_its_volume() -> None:
    view = parse_claim(
        {
            "metadata": {"namespace": "team", "name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1"},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadWriteMany"]},
        }
    )
    assert (view.namespace, view.name, view.phase, view.volume) == ("team", "data", "Bound", "pv-1")
    assert view.shared
    assert not view.deleting


@pytest.mark.parametrize(
    ("modes", "shared", "single_pod"),
    [
        (["ReadWriteOnce"], False, False),
        (["ReadWriteOncePod"], False, True),
        (["ReadOnlyMany"], True, False),
        (["ReadWriteMany"], True, False),
    ],
)
def test_access_modes(modes: list[str], shared: bool, single_pod: bool) -> None:
    view = parse_claim({"metadata": {"name": "data"}, "spec": {"accessModes": modes}})
    assert (view.shared, view.single_pod) == (shared, single_pod)
    assert view.volume is None


def test_a_volume_with_node_affinity_keeps_its_terms() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    spec = {
        "claimRef": {"namespace": "team", "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    view = parse_volume({"metadata": {"name": "pv-1"}, "spec": spec})
    assert (view.name, view.claim, view.node_terms) == ("pv-1", ("team", "data"), (term,))


@pytest.mark.parametrize("spec", [{}, {"nodeAffinity": {}}, {"nodeAffinity": None}])
def test_a_volume_without_node_affinity_can_be_used_anywhere(spec: object) -> None:
    view = parse_volume({"metadata": {"name": "pv-1"}, "spec": spec})
    assert (view.claim, view.node_terms) == (None, None)
