"""What the demo sees at one moment, read from the API server alone, as any user could."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from goodput_sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Rank:
    """A rank's pod."""

    name: str
    attempt: int
    node: str
    state: str


@dataclass(frozen=True)
class Frame:
    """The job, its ranks and the nodes."""

    phase: str
    reason: str
    attempt: int
    ready: str
    step: int | None
    total_steps: int | None
    loss: float | None
    checkpoint: int | None
    nodes: Mapping[str, bool]
    """Whether each node is Ready."""
    ranks: tuple[Rank, ...]
    job: Mapping[str, Any]
    """The whole TrainingJob."""

    @property
    def over(self) -> bool:
        """Complete or Failed."""
        return self.phase in ("Complete", "Failed")


def observe(sandbox: Sandbox, namespace: str, name: str) -> Frame:
    """Look once. Raises SandboxError when the API server does not answer."""
    found = json.loads(
        sandbox.kubectl("get", "-n", namespace, "trainingjobs,pods,nodes", "-o", "json", timeout=20)
    )["items"]
    by_kind: dict[str, list[dict[str, Any]]] = {"TrainingJob": [], "Pod": [], "Node": []}
    for item in found:
        by_kind.setdefault(item["kind"], []).append(item)
    job = next((each for each in by_kind["TrainingJob"] if each["metadata"]["name"] == name), {})
    status = job.get("status", {})
    progress = status.get("progress", {})
    return Frame(
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        attempt=status.get("attempt", 0),
        ready=status.get("ready", ""),
        step=progress.get("step"),
        total_steps=progress.get("totalSteps"),
        loss=progress.get("loss"),
        checkpoint=status.get("checkpoint", {}).get("step"),
        nodes={each["metadata"]["name"]: _is_ready(each) for each in by_kind["Node"]},
        ranks=tuple(_rank(each) for each in by_kind["Pod"] if "goodput.dev/role" in _labels(each)),
        job=job,
    )


def seconds(text: str | None) -> float | None:
    """POSIX seconds of a time on the wire."""
    return datetime.fromisoformat(text).timestamp() if text else None


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = item["metadata"].get("labels", {})
    return labels


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _rank(pod: Mapping[str, Any]) -> Rank:
    labels, status = _labels(pod), pod.get("status", {})
    state = status.get("phase", "Pending")
    if pod["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    elif state == "Running" and not all(
        each.get("ready") for each in status.get("containerStatuses", [])
    ):
        state = "Starting"
    return Rank(
        name=f"{labels['goodput.dev/role']}-{labels['goodput.dev/rank']}",
        attempt=int(labels["goodput.dev/attempt"]),
        node=pod["spec"].get("nodeName", ""),
        state=state,
    )
