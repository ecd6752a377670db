"""Case 9: every phase and condition that a TrainingJob went through lies on one graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

PHASES: dict[str, frozenset[str]] = {
    phase: frozenset(after.split())
    for phase, after in {
        "": "Pending Queued Starting Suspended",
        "Pending": "Queued Starting Restarting Stopping Suspended Failed",
        "Queued": "Pending Starting Restarting Stopping Suspended Failed",
        "Starting": "Queued Running Restarting Stopping Complete Failed",
        "Running": "Restarting Stopping Complete Failed",
        "Restarting": "Pending Queued Starting Stopping Suspended Failed",
        "Stopping": "Pending Queued Starting Restarting Suspended Failed",
        "Suspended": "Pending Queued Starting Restarting Stopping Failed",
        "Complete": "",
        "Failed": "",
    }.items()
}
"""What may follow a phase; the empty one is that of a job that nobody has looked at yet.

An operator that was away may find that Kueue has admitted the job meanwhile: then ``Queued`` is
left out. The diagram in docs/trainingjob.md is this table."""

CONDITIONS: dict[str, frozenset[tuple[str, str]]] = {
    **dict.fromkeys(
        ("Admitted", "Running"),
        frozenset({("", "False"), ("", "True"), ("False", "True"), ("True", "False")}),
    ),
    "Degraded": frozenset({("", "True"), ("True", "False"), ("False", "True")}),
    "Migrating": frozenset({("", "True"), ("", "False"), ("True", "False"), ("False", "True")}),
    "Suspended": frozenset({("", "True"), ("True", "False"), ("False", "True")}),
    "Complete": frozenset({("", "True")}),
    "Failed": frozenset({("", "True")}),
}
"""From which status to which a condition may go; the empty one is its absence."""

Transition = tuple[str, str, str]
"""What changed (``phase`` or a type of condition), from what, to what."""


def transitions(events: Iterable[dict[str, Any]]) -> Counter[Transition]:
    """All changes between successive states of each object of a watch.

    What was there when the watch began (an ``ADDED`` that has a status) has no past.
    """
    found: Counter[Transition] = Counter()
    seen: dict[str, dict[str, str]] = {}
    for event in events:
        job = event["object"]
        after = state(job)
        new_here = after if event.get("type") == "ADDED" else {}
        before = seen.get(job["metadata"]["uid"], new_here)
        for what in before.keys() | after.keys():
            old, new = before.get(what, ""), after.get(what, "")
            if old != new:
                found[what, old, new] += 1
        seen[job["metadata"]["uid"]] = after
    return found


def state(job: dict[str, Any]) -> dict[str, str]:
    """The phase and the conditions of a job."""
    status = job.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return {**conditions, "phase": status.get("phase", "")}


def allowed(transition: Transition) -> bool:
    """Whether the graph has this edge."""
    what, old, new = transition
    if what == "phase":
        return new in PHASES.get(old, frozenset())
    return (old, new) in CONDITIONS.get(what, frozenset())
