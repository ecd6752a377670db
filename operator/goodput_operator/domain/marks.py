"""Which rule of ``spec.faultTolerance.rules`` a failed rank matches, by the marks it bears."""

import signal
from collections.abc import Iterable, Sequence

from goodput_operator.api.failure_rules import FailureRule
from goodput_operator.api.status import FiredRule
from goodput_operator.domain.model import PodView

SIGNAL_BASE = 128
"""A process that a signal has ended exits with this plus the signal's number (POSIX shells)."""


def first_match(
    rules: Sequence[FailureRule], pods: Iterable[PodView]
) -> tuple[FiredRule, PodView] | None:
    """The first rule, in their order, that one of the pods matches, with that pod."""
    failed = tuple(pods)
    for index, rule in enumerate(rules):
        for pod in failed:
            if matches(rule, pod):
                return FiredRule(index=index, action=rule.action), pod
    return None


def matches(rule: FailureRule, pod: PodView) -> bool:
    """Whether any of the rule's marks is on the pod."""
    if rule.roles and pod.role not in rule.roles:
        return False
    codes = {*rule.exit_codes, *(SIGNAL_BASE + signal.Signals[each] for each in rule.signals)}
    for each in pod.exits:
        if each.exit_code and (each.exit_code in codes or each.reason in rule.reasons):
            return True
    if pod.status_reason and pod.status_reason in rule.reasons:
        return True
    return any(
        mark.type == condition.type
        and mark.status == condition.status
        and mark.reason in (None, condition.reason)
        for mark in rule.pod_conditions
        for condition in pod.conditions
    )
