"""Whose an object is, and whether a version of it is news."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goodput_operator import constants as c
from goodput_operator.domain.model import JobKey, PodView
from goodput_operator.observe.raw import controller, text

Raw = Mapping[str, Any]


def same(before: Any, after: Any) -> bool:
    """Whether two views differ in their version alone."""
    return bool(replace(before, resource_version=after.resource_version) == after)


def job_of(pod: PodView) -> JobKey:
    """The job that a pod is of."""
    return JobKey(pod.namespace, pod.job)


def owner(raw: Raw) -> JobKey | None:
    """The TrainingJob that controls an object."""
    owner = controller(raw)
    if text(owner, "kind") != c.KIND or not text(owner, "apiVersion").startswith(f"{c.GROUP}/"):
        return None
    return JobKey(text(raw, "metadata", "namespace"), text(owner, "name"))


def without_managed_fields(raw: Raw) -> Raw:
    """The same object without what is large and that nobody reads."""
    metadata = {k: v for k, v in raw["metadata"].items() if k != "managedFields"}
    return {**raw, "metadata": metadata}
