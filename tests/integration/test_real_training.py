"""Ranks that really train, on real kubelets: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.volumes import shared_volume
from tests.integration.cluster import NO_RESTARTS, Tenant, kueue

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="real nodes need root"),
]

STEPS, EVERY = 60, 10
NODES = ("real-a", "real-b", "real-c")
CLAIM = "checkpoints"
TOLERANCE = 1e-4
"""Of the loss, relative: the order of floating-point sums is all that may differ."""


@pytest.fixture(scope="module")
def nodes(sandbox: Sandbox) -> Iterator[Any]:
    """Three real nodes with the training image."""
    from goodput_sandbox import images, requirements
    from goodput_sandbox.lifecycle import say
    from goodput_sandbox.nodes import RealNodes

    requirements.ensure(say, requirements.REAL_NODES)
    made = RealNodes(sandbox, (images.DIGITS,))
    for name in NODES:
        made.add(name, wait=False)
    made.wait_ready(*NODES)
    yield made
    made.remove_all()


class Training:
    """Jobs of the digits example, with their loss curves."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.folder = shared_volume(tenant.sandbox, tenant.name, CLAIM)
        quotas = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]
        flavor = {"name": tenant.name, "resources": quotas}
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]
        tenant.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": CLAIM, "namespace": tenant.name},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
            kueue("ResourceFlavor", tenant.name, {}),
            kueue(
                "ClusterQueue",
                tenant.name,
                {"namespaceSelector": {}, "resourceGroups": groups},
            ),
            kueue("LocalQueue", "main", {"clusterQueue": tenant.name}, tenant.name),
        )

    def submit(self, name: str, **spec: Any) -> str:
        """A gang of two ranks, one to a node."""
        arguments = [f"--steps={STEPS}", f"--checkpoint-every={EVERY}", "--min-accuracy=0.8"]
        container = {
            "name": "train",
            "image": "goodput-examples/digits:0.1.0",
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "/app/train.py"],
            "args": [*arguments, "--min-step-seconds=0.25"],
            "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
        }
        template = {"spec": {"containers": [container]}}
        volume = {"claimName": CLAIM, "mountPath": "/checkpoints"}
        checkpoint = {"uri": "/checkpoints", "volume": volume, "gracePeriodSeconds": 15}
        metadata = {"name": name, "namespace": self.tenant.name}
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": "main"}  # type: ignore[assignment]
        self.tenant.apply(
            {
                "apiVersion": "goodput.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": metadata,
                "spec": {
                    "framework": "JAX",
                    "roles": [{"name": "worker", "replicas": 2, "template": template}],
                    "checkpoint": checkpoint,
                    **spec,
                },
            }
        )
        return name

    def script(
        self,
        name: str,
        script: str,
        replicas: int = 1,
        pod: dict[str, Any] | None = None,
        **spec: Any,
    ) -> str:
        """A gang that runs a shell script instead; ``pod`` is more of its pods' spec."""
        container = {
            "name": "main",
            "image": "goodput-examples/digits:0.1.0",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }
        pod_spec = {"containers": [container], **(pod or {})}
        for sidecar in pod_spec.get("initContainers", ()):
            sidecar.update({key: container[key] for key in ("image", "imagePullPolicy")})
        role = {"name": "worker", "replicas": replicas, "template": {"spec": pod_spec}}
        metadata = {"name": name, "namespace": self.tenant.name}
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": "main"}  # type: ignore[assignment]
        self.tenant.apply(
            {
                "apiVersion": "goodput.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": metadata,
                "spec": {"roles": [role], **spec},
            }
        )
        return name

    def curve(self, job: str, attempt: int) -> dict[int, float]:
        """Loss by step, as rank 0 has printed it."""
        pod = f"{job}-a{attempt}-worker-0"
        lines = self.tenant.sandbox.kubectl("logs", "-n", self.tenant.name, pod).splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return {line["step"]: line["loss"] for line in parsed if "loss" in line}

    def step(self, job: str) -> int:
        """The last step that was reported."""
        return int(self.tenant.status(job).get("progress", {}).get("step", 0))

    def result(self, attempt: int) -> dict[str, Any]:
        """What rank 0 has written in the end."""
        files = list(Path(self.folder).glob(f"*/attempt-{attempt}/result.json"))
        return dict(json.loads(files[0].read_text()))


def same(left: dict[int, float], right: dict[int, float], steps: range) -> None:
    """Two curves agree over these steps."""
    for step in steps:
        assert left[step] == pytest.approx(right[step], rel=TOLERANCE), f"loss of step {step}"


@pytest.fixture
def training(tenant: Tenant, nodes: Any) -> Training:
    return Training(tenant)


def test_a_run_that_loses_a_node_ends_as_if_nothing_had_happened(
    training: Training, nodes: Any
) -> None:
    tenant = training.tenant
    calm = training.submit("calm")
    tenant.wait(calm, "Complete", timeout=180)
    expected = training.curve(calm, 1)
    assert sorted(expected) == list(range(1, STEPS + 1))
    tenant.sandbox.kubectl("delete", "trainingjob", calm, "-n", tenant.name)

    job = training.submit("hit")
    tenant.eventually(lambda: training.step(job) >= EVERY + 5, "training under way", 120)
    before = training.curve(job, 1)
    durable = tenant.status(job)["checkpoint"]["step"]
    lost = next(p for p in tenant.pods(job) if p["metadata"]["name"].endswith("-0"))
    killed = lost["spec"]["nodeName"]
    nodes.kill(killed)
    status = tenant.wait(job, "Complete", timeout=240)
    nodes.restart(killed)

    assert status["attempt"] == 2
    assert status["restarts"] == {**NO_RESTARTS, "infrastructure": 1}
    resumed_from = status["progress"]["resumedFromStep"]
    assert resumed_from >= durable >= EVERY
    after = training.curve(job, 2)
    assert sorted(after) == list(range(resumed_from + 1, STEPS + 1))
    same(before, expected, range(1, max(before) + 1))
    same(after, expected, range(resumed_from + 1, STEPS + 1))
    # Never more than what came after the last durable checkpoint.
    assert max(before) - resumed_from <= EVERY + 1
    assert training.result(2)["accuracy"] > 0.8


def test_a_suspended_run_saves_first_and_goes_on_from_there(training: Training) -> None:
    tenant = training.tenant
    job = training.submit("paused")
    tenant.eventually(lambda: training.step(job) >= 3, "training under way", 120)
    tenant.patch(job, {"suspend": True})
    tenant.wait(job, "Suspended", timeout=60)
    saved = tenant.status(job)["checkpoint"]["step"]
    assert saved >= 3, "the last save on SIGTERM was reported"
    tenant.patch(job, {"suspend": False})
    tenant.eventually(
        lambda: tenant.status(job).get("progress", {}).get("attempt") == 2, "attempt 2", 120
    )
    status = tenant.wait(job, "Complete", timeout=180)
    assert status["progress"]["resumedFromStep"] == saved
    assert status["restarts"] == NO_RESTARTS


def test_ranks_on_a_partitioned_node_can_do_no_harm(training: Training, nodes: Any) -> None:
    tenant = training.tenant
    job = training.submit("cut")
    tenant.eventually(lambda: training.step(job) >= EVERY + 2, "training under way", 120)
    cut = next(p for p in tenant.pods(job) if p["metadata"]["name"].endswith("-0"))
    nodes.partition(cut["spec"]["nodeName"])
    try:
        tenant.wait(job, "Running", timeout=90, attempt=2)
        tenant.eventually(lambda: training.step(job) > 2 * EVERY, "attempt 2 trains", 120)
    finally:
        nodes.heal(cut["spec"]["nodeName"])
    status = tenant.wait(job, "Complete", timeout=180)
    assert status["attempt"] == 2
    # The old rank's pod goes once its kubelet is back, and the job is untouched by that.
    tenant.eventually(lambda: not tenant.pods(job, 1), "old pods gone", 90)
    time.sleep(2)
    assert tenant.status(job)["phase"] == "Complete"


def test_how_a_sidecar_ends_is_no_crash(training: Training) -> None:
    """Neither one that fails again and again while the rank works, nor one that is stopped."""
    sidecars = [
        {"name": name, "restartPolicy": "Always", "command": ["sh", "-c", script]}
        for name, script in (
            ("fails", "sleep 1; exit 3"),
            ("stopped", "trap 'exit 4' TERM; while :; do sleep 0.2; done"),
        )
    ]
    job = training.script("beside", "sleep 5", pod={"initContainers": sidecars})
    status = training.tenant.wait(job, "Complete", timeout=60)
    assert (status["attempt"], status["restarts"]) == (1, NO_RESTARTS)


def test_a_pod_that_kubelets_refuse_is_not_made_in_a_storm(training: Training) -> None:
    tenant = training.tenant
    sysctls = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}
    job = training.script("refused", "exit 0", pod=sysctls)
    tenant.eventually(lambda: tenant.status(job).get("attempt", 0) >= 2, "a second try", 45)
    time.sleep(10)
    status = tenant.status(job)
    assert status["attempt"] <= 5
    assert status["restarts"]["crash"] == 0
    assert all("SysctlForbidden" in each["message"] for each in status["attempts"])
    tried = [each["nodes"][0] for each in status["attempts"]]
    assert len(set(tried[:3])) == len(tried[:3]), "a node that has refused is left out"


def test_the_logs_of_a_rank_that_crashed_are_kept(training: Training) -> None:
    tenant = training.tenant
    script = "case $GOODPUT_RANK in 0) echo what went wrong; sleep 2; exit 7;; *) sleep 600;; esac"
    job = training.script("crashes", script, 2, faultTolerance={"maxCrashRestarts": 0})
    status = tenant.wait(job, "Failed", timeout=60)
    assert status["restarts"] == NO_RESTARTS | {"crash": 1}
    assert "code 7: what went wrong" in status["attempts"][-1]["message"]
    tenant.eventually(lambda: len(tenant.get("pods")) == 1, "the other rank is gone", 30)
    logs = tenant.sandbox.kubectl("logs", "-n", tenant.name, f"{job}-a1-worker-0")
    assert logs.strip() == "what went wrong"
