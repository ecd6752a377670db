"""Which nodes a rank may be on."""

from typing import Any

import pytest

from goodput_operator.domain.model import NodeView, PodSetAssignment, Taint
from goodput_operator.domain.placement.constraints import (
    BEING_DELETED,
    NO_MATCH,
    NOT_READY,
    UNSCHEDULABLE,
    NodeConstraints,
)
from goodput_operator.domain.resources import Resources

LABELS = {"pool": "gpu", "generation": "7", "zone": "a"}


def node(
    *taints: tuple[str, str, str],
    name: str = "node-1",
    ready: bool = True,
    unschedulable: bool = False,
    deleting: bool = False,
    labels: dict[str, str] = LABELS,
) -> NodeView:
    return NodeView(
        name=name,
        labels=labels,
        taints=tuple(Taint(*taint) for taint in taints),
        unschedulable=unschedulable,
        ready=ready,
        ready_since=None,
        ready_message="",
        heartbeat_at=None,
        allocatable=Resources(),
        deleting=deleting,
    )


def constraints(**spec: Any) -> NodeConstraints:
    return NodeConstraints.of({"spec": spec}, None)


def affinity(*terms: dict[str, Any]) -> NodeConstraints:
    required = {"nodeSelectorTerms": list(terms)}
    return constraints(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    )


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (expression("pool", "In", "cpu", "gpu"), True),
        (expression("pool", "In", "cpu"), False),
        (expression("absent", "In", "x"), False),
        (expression("pool", "NotIn", "cpu"), True),
        (expression("pool", "NotIn", "gpu"), False),
        (expression("absent", "NotIn", "x"), True),
        (expression("pool", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("pool", "DoesNotExist"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("generation", "Gt", "6"), True),
        (expression("generation", "Gt", "7"), False),
        (expression("generation", "Lt", "8"), True),
        (expression("generation", "Lt", "6"), False),
        (expression("pool", "Gt", "1"), False),
        (expression("pool", "Lt", "1"), False),
        (expression("absent", "Lt", "1"), False),
    ],
)
def test_every_operator(requirement: dict[str, Any], met: bool) -> None:
    found = affinity({"matchExpressions": [requirement]}).mismatch(node())
    assert found == (None if met else NO_MATCH)


@pytest.mark.parametrize(
    "term",
    [
        {},
        {"matchExpressions": []},
        {"matchExpressions": [expression("pool", "In")]},
        {"matchExpressions": [expression("pool", "Exists", "gpu")]},
        {"matchExpressions": [expression("generation", "Gt", "six")]},
        {"matchExpressions": [expression("generation", "Gt", "1", "2")]},
        {"matchExpressions": [expression("generation", "Gt", "-1")]},
        {"matchExpressions": [expression("pool", "NotIn", "not a label value")]},
        {"matchExpressions": [expression("pool", "Matches", "gpu")]},
        {"matchFields": [expression("metadata.name", "In", "node-1", "node-2")]},
        {"matchFields": [expression("metadata.name", "Exists")]},
        {"matchFields": [expression("spec.podCIDR", "In", "10.0.0.0/8")]},
    ],
)
def test_empty_and_invalid_terms_match_no_node(term: dict[str, Any]) -> None:
    assert affinity(term).mismatch(node()) == NO_MATCH
    valid = {"matchExpressions": [expression("pool", "Exists")]}
    assert affinity(term, valid).mismatch(node()) is None


def test_terms_are_alternatives_and_expressions_are_not() -> None:
    gpu, zone_b = expression("pool", "In", "gpu"), expression("zone", "In", "b")
    assert affinity({"matchExpressions": [gpu, zone_b]}).mismatch(node()) == NO_MATCH
    either = affinity({"matchExpressions": [gpu]}, {"matchExpressions": [zone_b]})
    assert either.mismatch(node()) is None


def test_no_terms_match_no_node() -> None:
    assert affinity().mismatch(node()) == NO_MATCH


def test_fields_name_the_node() -> None:
    only = affinity({"matchFields": [expression("metadata.name", "In", "node-1")]})
    others = affinity({"matchFields": [expression("metadata.name", "NotIn", "node-1")]})
    assert only.mismatch(node()) is None
    assert only.mismatch(node(name="node-2")) == NO_MATCH
    assert others.mismatch(node()) == NO_MATCH
    assert others.mismatch(node(name="node-2")) is None


def test_node_selector_and_affinity_must_both_hold() -> None:
    assert constraints(nodeSelector={"pool": "gpu"}).mismatch(node()) is None
    assert constraints(nodeSelector={"pool": "cpu"}).mismatch(node()) == NO_MATCH
    assert constraints(nodeSelector={"pool": "gpu", "x": ""}).mismatch(node()) == NO_MATCH


TAINT = ("dedicated", "training", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "dedicated", "value": "training"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "training"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "serving"}, False),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": None}, True),
        ({"key": "dedicated", "operator": "Unknown", "value": "training"}, False),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:
    found = constraints(tolerations=[toleration]).mismatch(node(TAINT))
    reason = "node(s) had untolerated taint {dedicated: training}"
    assert found == (None if tolerated else reason)


@pytest.mark.parametrize(
    ("effect", "matters"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_which_taints_matter(effect: str, matters: bool) -> None:
    assert (constraints().mismatch(node(("k", "v", effect))) is not None) == matters


def test_every_taint_must_be_tolerated() -> None:
    tolerant = constraints(tolerations=[{"key": "dedicated", "operator": "Exists"}])
    tainted = node(TAINT, ("maintenance", "", "NoExecute"))
    assert tolerant.mismatch(tainted) == "node(s) had untolerated taint {maintenance: }"


def test_a_cordoned_node_needs_its_own_toleration() -> None:
    key = "node.kubernetes.io/unschedulable"
    cordoned = node((key, "", "NoSchedule"), unschedulable=True)
    assert constraints().mismatch(cordoned) == UNSCHEDULABLE
    tolerant = constraints(tolerations=[{"key": key, "operator": "Exists"}])
    assert tolerant.mismatch(cordoned) is None


def test_a_lost_node_is_never_planned_for() -> None:
    tolerant = constraints(tolerations=[{"operator": "Exists"}])
    assert tolerant.mismatch(node(ready=False)) == NOT_READY
    for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"):
        assert tolerant.mismatch(node((key, "", "NoExecute"))) == NOT_READY
    assert tolerant.mismatch(node(deleting=True)) == BEING_DELETED


def assignment(
    labels: dict[str, str], tolerations: tuple[dict[str, Any], ...] = ()
) -> PodSetAssignment:
    return PodSetAssignment(name="worker", count=1, node_labels=labels, tolerations=tolerations)


def test_labels_and_tolerations_of_the_flavour_are_added() -> None:
    flavour = assignment({"pool": "gpu"}, ({"key": "dedicated", "operator": "Exists"},))
    wanted = NodeConstraints.of({"spec": {"nodeSelector": {"zone": "a"}}}, flavour)
    assert wanted.mismatch(node(TAINT)) is None
    assert wanted.mismatch(node(TAINT, labels={"zone": "a", "pool": "cpu"})) == NO_MATCH
    assert wanted.mismatch(node(TAINT, labels={"pool": "gpu"})) == NO_MATCH


def test_a_flavour_that_contradicts_the_template_matches_no_node() -> None:
    wanted = NodeConstraints.of({"spec": {"nodeSelector": {"pool": "cpu"}}}, assignment(LABELS))
    assert wanted.mismatch(node()) == NO_MATCH


def test_a_template_without_constraints_fits_any_node() -> None:
    assert NodeConstraints.of({}, None) == NodeConstraints()
    assert NodeConstraints.of({"spec": {"affinity": None}}, None).mismatch(node()) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": ["gpu"]}},
        {"affinity": "gpu"},
        {"nodeSelector": ["gpu"]},
        {"tolerations": ["gpu"]},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "k", "operator": "In", "values": [3]}]}
                        ]
                    }
                }
            }
        },
    ],
)
def test_what_no_pod_can_have_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nodeSelector, affinity and tolerations must be"):
        NodeConstraints.of({"spec": spec}, None)
