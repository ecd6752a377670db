"""Which nodes a rank may be on, whatever room they have.

The rules are those of kube-scheduler's NodeAffinity, TaintToleration and NodeUnschedulable plugins
(``k8s.io/component-helpers/scheduling/corev1``), so that no rank is planned where it can't bind.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goodput_operator import constants as c
from goodput_operator.domain.model import Lease, NodeView, PodSetAssignment, Taint

_FORBIDDING_EFFECTS = ("NoSchedule", "NoExecute")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LABEL_VALUE = re.compile(r"(?:(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_UNSCHEDULABLE = Taint(key=c.TAINT_UNSCHEDULABLE, value="", effect="NoSchedule")
_NAME_FIELD = "metadata.name"

NOT_READY = "node(s) not ready"
LATE = "node(s) late to renew their Lease"
BEING_DELETED = "node(s) being deleted"
UNSCHEDULABLE = "node(s) unschedulable"
VOLUME_CONFLICT = "node(s) had volume node affinity conflict"
NO_MATCH = "node(s) didn't match the node selector or affinity"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression on a label of the node. ``Gt`` and ``Lt`` compare integers."""

    key: str
    operator: str
    values: tuple[str, ...]

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt":
                return _compare(value, self.values[0]) > 0
            case _:
                return _compare(value, self.values[0]) < 0


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """A term of a required node affinity: all its expressions must hold."""

    labels: tuple[Requirement, ...]
    names: tuple[Requirement, ...]
    """Expressions on the node's name, written as a label of that key."""

    def met_by(self, node: NodeView) -> bool:
        """Whether the node satisfies every expression."""
        return all(requirement.met_by(node.labels) for requirement in self.labels) and all(
            requirement.met_by({_NAME_FIELD: node.name}) for requirement in self.names
        )


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key or effect stands for all of them."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether a pod with this toleration may be on a node with that taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """What the pods of a role demand of their nodes. Hashable."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    """Terms of the required node affinity, of which one must hold; None: there is none."""
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[SelectorTerm, ...], ...] = ()
    """For each volume that not all nodes can use: terms, of which one must hold."""

    @classmethod
    def of(
        cls, template: Mapping[str, Any], assignment: PodSetAssignment | None
    ) -> "NodeConstraints":
        """Of a role's pod template, with the labels and tolerations of its assigned flavours.

        Where both want another value of one label, no node matches. Raises ValueError when one of
        the three fields is not what a pod has there: their schema is not the CRD's.
        """
        try:
            return cls._of_spec(template.get("spec") or {}, assignment)
        except (AttributeError, TypeError) as error:
            raise ValueError(
                "template.spec: nodeSelector, affinity and tolerations must be as in a pod "
                f"(labels and values are strings): {error}"
            ) from error

    @classmethod
    def _of_spec(
        cls, spec: Mapping[str, Any], assignment: PodSetAssignment | None
    ) -> "NodeConstraints":
        selector = set((spec.get("nodeSelector") or {}).items())
        tolerations = list(spec.get("tolerations") or ())
        if assignment is not None:
            selector |= set(assignment.node_labels.items())
            tolerations += assignment.tolerations
        return cls(
            selector=tuple(sorted(selector)),
            terms=_required_terms(spec),
            tolerations=tuple(_toleration(raw) for raw in tolerations),
        )

    def mismatch(self, node: NodeView) -> str | None:
        """Why a rank can't be on this node, in the words of kube-scheduler; None when it can."""
        if node.lost:
            return NOT_READY
        if node.lease is Lease.LATE:
            return LATE
        if node.deleting:
            return BEING_DELETED
        if node.bad is not None:
            return f"node(s) had the condition {node.bad.type}"
        if node.unschedulable and not self._tolerates(_UNSCHEDULABLE):
            return UNSCHEDULABLE
        for taint in node.taints:
            if taint.effect in _FORBIDDING_EFFECTS and not self._tolerates(taint):
                return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        if not self._selects(node):
            return NO_MATCH
        usable = all(any(term.met_by(node) for term in terms) for terms in self.volumes)
        return None if usable else VOLUME_CONFLICT

    def _selects(self, node: NodeView) -> bool:
        labels = node.labels
        for key, value in self.selector:
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.met_by(node) for term in self.terms)

    def _tolerates(self, taint: Taint) -> bool:
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


def _compare(label: str | None, bound: str) -> int:
    """Sign of label - bound; 0, which satisfies neither Gt nor Lt, if a label is no integer."""
    if label is None or not _INTEGER.fullmatch(label):
        return 0
    left, right = int(label), int(bound)
    return (left > right) - (left < right)


def _toleration(raw: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=raw.get("key") or "",
        operator=raw.get("operator") or "",
        value=raw.get("value") or "",
        effect=raw.get("effect") or "",
    )


def _required_terms(spec: Mapping[str, Any]) -> tuple[SelectorTerm, ...] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return selector_terms(required.get("nodeSelectorTerms") or ())


def selector_terms(raw_terms: Iterable[Mapping[str, Any]]) -> tuple[SelectorTerm, ...]:
    """``nodeSelectorTerms``, without those that no node can satisfy."""
    parsed = (_term(raw) for raw in raw_terms)
    return tuple(term for term in parsed if term is not None)


def _term(raw: Mapping[str, Any]) -> SelectorTerm | None:
    """None for a term that no node can satisfy: an empty one, or one with an invalid expression."""
    expressions = tuple(_requirements(raw.get("matchExpressions")))
    fields = tuple(_requirements(raw.get("matchFields")))
    if not expressions and not fields:
        return None
    if not all(_is_valid(requirement) for requirement in expressions):
        return None
    if not all(_is_valid_on_name(requirement) for requirement in fields):
        return None
    return SelectorTerm(labels=expressions, names=fields)


def _requirements(raw: Iterable[Mapping[str, Any]] | None) -> Iterable[Requirement]:
    for expression in raw or ():
        yield Requirement(
            key=expression.get("key") or "",
            operator=expression.get("operator") or "",
            values=tuple(expression.get("values") or ()),
        )


def _is_valid(requirement: Requirement) -> bool:
    if not all(_LABEL_VALUE.fullmatch(value) for value in requirement.values):
        return False
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            values = requirement.values
            return len(values) == 1 and _INTEGER.fullmatch(values[0]) is not None
        case _:
            return False


def _is_valid_on_name(requirement: Requirement) -> bool:
    """Fields know the node's name alone, and of the operators In and NotIn with one value."""
    return (
        requirement.key == _NAME_FIELD
        and requirement.operator in ("In", "NotIn")
        and len(requirement.values) == 1
    )
