"""Workloads as decisions see them: parsed with the ResourceFlavors and AdmissionChecks there are.

What a Workload's pods are to get is said by other objects. So the raw ones are kept, and parsed
anew when one of those changes. Each change returns the jobs whose Workloads it changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from goodput_operator.domain.model import JobKey, WorkloadView
from goodput_operator.observe.flavor import FlavorView
from goodput_operator.observe.raw import text
from goodput_operator.observe.workload import parse_workload
from goodput_operator.runtime.belonging import owner, same

Raw = Mapping[str, Any]


class Workloads:
    """Views by the job that owns them."""

    def __init__(self) -> None:
        self.by_job: dict[JobKey, tuple[WorkloadView, ...]] = {}
        self.our_checks: frozenset[str] = frozenset()
        """Names of the AdmissionChecks that this operator answers."""
        self._raw: dict[JobKey, dict[str, Raw]] = {}
        self._flavors: dict[str, FlavorView] = {}

    def put(self, raw: Raw, before: Raw | None) -> set[JobKey]:
        """A Workload, and what it replaces. Without a job that owns it, it is nobody's."""
        key = owner(raw)
        changed = self.drop(before) if before is not None and owner(before) != key else set()
        if key is not None:
            self._raw.setdefault(key, {})[text(raw, "metadata", "name")] = raw
            changed |= self._parse([key])
        return changed

    def drop(self, raw: Raw) -> set[JobKey]:
        """A Workload that was put is gone."""
        key = owner(raw)
        if key is None:
            return set()
        del self._raw[key][text(raw, "metadata", "name")]
        return self._parse([key])

    def put_flavor(self, view: FlavorView) -> set[JobKey]:
        """A ResourceFlavor."""
        before = self._flavors.get(view.name)
        self._flavors[view.name] = view
        return set() if before == view else self._parse(list(self._raw))

    def drop_flavor(self, name: str) -> set[JobKey]:
        """A ResourceFlavor is gone."""
        return set() if self._flavors.pop(name, None) is None else self._parse(list(self._raw))

    def put_check(self, name: str, *, ours: bool) -> set[JobKey]:
        """An AdmissionCheck that this operator answers or, if it is gone too, does not."""
        checks = self.our_checks | {name} if ours else self.our_checks - {name}
        if checks == self.our_checks:
            return set()
        self.our_checks = checks
        return self._parse(list(self._raw))

    def _parse(self, keys: Iterable[JobKey]) -> set[JobKey]:
        return {key for key in keys if self._parse_of(key)}

    def _parse_of(self, key: JobKey) -> bool:
        before = self.by_job.pop(key, ())
        mine = self._raw.get(key, {})
        after = tuple(parse_workload(raw, self._flavors, self.our_checks) for raw in mine.values())
        if after:
            self.by_job[key] = after
        else:
            self._raw.pop(key, None)
        return len(before) != len(after) or not all(map(same, before, after))
