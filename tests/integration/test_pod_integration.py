"""Case 30: Kueue's pod integration, on as in its chart, and a namespace with a default LocalQueue.

A sandbox of its own, since Kueue's configuration is for a whole cluster. Kueue is started anew only
where a test needs another configuration than the one before.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

from goodput_sandbox import kueue as kueue_process
from goodput_sandbox.operator_process import start_operator, stop_operator
from goodput_sandbox.options import REPOSITORY, SandboxOptions
from goodput_sandbox.sandbox import Sandbox
from tests.integration.api import api_of
from tests.integration.cluster import COMPLETE, NO_RESTARTS, Tenant, kueue, sandbox_name
from tests.integration.conftest import SHORT
from tests.integration.record import Record
from tests.integration.transitions import allowed

FRAMEWORK = "TrainingJob.v1alpha1.goodput.dev"
RIGHTS = REPOSITORY / "sandbox" / "manifests" / "operator-rbac.yaml"
BINDING = "goodput-kueue-reads-trainingjobs"
MANAGED = "kueue.x-k8s.io/managed"
SAID = "KueueNotConfigured"
AGAIN = {"GOODPUT_REQUEUE_MAX_SECONDS": "4"}
"""What is refused is tried again so soon, not after minutes."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Setup:
    """How Kueue is installed."""

    told: bool = True
    """It knows TrainingJobs, by ``externalFrameworks``."""
    reads: bool = True
    """Its account may read them."""
    takes_all: bool = False
    """``manageJobsWithoutQueueName``."""


class Cluster:
    """A sandbox with the pod integration, whose Kueue can be set up differently."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self._setup = sandbox, Setup(told=False)

    def use(self, setup: Setup) -> None:
        """As an administrator does: rights, configuration, and a new start of Kueue."""
        if setup == self._setup:
            return
        if setup.reads:
            self.grant()
        else:
            self.sandbox.kubectl("delete", "clusterrolebinding", BINDING, "--ignore-not-found")
        path = kueue_process.config_file(self.sandbox)
        config = yaml.safe_load(path.read_text())
        config["integrations"]["externalFrameworks"] = [FRAMEWORK] if setup.told else []
        config["manageJobsWithoutQueueName"] = setup.takes_all
        path.write_text(yaml.safe_dump(config))
        self.sandbox.stop_process(kueue_process.PROCESS, kill=True)
        self.sandbox.restart_process(kueue_process.PROCESS)
        kueue_process.wait_ready(self.sandbox)
        self._setup = setup

    def grant(self) -> None:
        """What the documentation says to apply."""
        command = ("apply", "--server-side", "--force-conflicts", "-f", str(RIGHTS))
        self.sandbox.kubectl(*command)
        self._setup = replace(self._setup, reads=True)

    def tenant(self, quota: int) -> Tenant:
        """A namespace with a LocalQueue ``default``, two nodes and so many GPUs of quota."""
        made = Tenant(self.sandbox, f"p{next(_numbers)}")
        made.nodes(2)
        made.queue(quota)
        made.apply(kueue("LocalQueue", "default", {"clusterQueue": made.name}, made.name))
        return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Torn down by its watchdog if this process is killed."""
    sandbox = Sandbox(f"{sandbox_name()}pods")
    options = SandboxOptions(
        kueue_integrations=("batch/job", "pod"), kueue_external_frameworks=(), dns=False
    )
    try:
        sandbox.up(options, owner_pid=os.getpid())
        start_operator(sandbox, SHORT | AGAIN)
        record = Record(api_of(sandbox))
        try:
            yield Cluster(sandbox)
        finally:
            record.close()
            stop_operator(sandbox)
        wrong = {each: n for each, n in record.transitions().items() if not allowed(each)}
        assert not wrong, f"not on the graph of tests/integration/transitions.py: {wrong}"
    finally:
        api_of(sandbox).close()
        sandbox.down()


def message(tenant: Tenant, job: str) -> str:
    """What the job says of itself."""
    conditions = tenant.status(job).get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "Running"), "")


def left_over(tenant: Tenant) -> list[str]:
    """Pods, also those that are being deleted, and Workloads that are not the job's own."""
    pods = [f"pod {each['metadata']['name']}" for each in tenant.get("pods")]
    return pods + [f"Workload {name}" for name in foreign_workloads(tenant)]


def foreign_workloads(tenant: Tenant) -> list[str]:
    owners = {
        each["metadata"]["name"]: [o["kind"] for o in each["metadata"].get("ownerReferences", ())]
        for each in tenant.get("workloads")
    }
    return [name for name, kinds in owners.items() if kinds != ["TrainingJob"]]


def is_ours_alone(pod: dict[str, Any]) -> bool:
    """Nothing of Kueue's pod integration is on it."""
    metadata = pod["metadata"]
    return (
        MANAGED not in metadata["labels"]
        and not metadata.get("finalizers")
        and not pod["spec"].get("schedulingGates")
    )


def runs_and_completes(tenant: Tenant, job: str) -> None:
    """On its own quota, once, with pods that nobody else has touched."""
    tenant.wait(job, "Running", timeout=45, reason="AllRanksReady", ready="2/2")
    pods = tenant.pods(job)
    assert len(pods) == 2
    assert all(map(is_ours_alone, pods))
    assert foreign_workloads(tenant) == []
    tenant.eventually(lambda: tenant.used_gpus() == 2, "quota used once")
    tenant.annotate(COMPLETE, *(pod["metadata"]["name"] for pod in pods))
    status = tenant.wait(job, "Complete")
    assert status["restarts"] == NO_RESTARTS


def said(tenant: Tenant, job: str) -> tuple[str, str]:
    """Phase and reason, of one moment: the job soon queues again."""
    status = tenant.status(job)
    return status["phase"], status["reason"]


@pytest.mark.parametrize("quota", [4, 2], ids=["quota for twice", "quota for once"])
def test_case_30_without_the_configuration_the_job_says_what_to_do_and_nothing_is_left(
    cluster: Cluster, quota: int
) -> None:
    cluster.use(Setup(told=False))
    tenant = cluster.tenant(quota)
    job = tenant.submit()
    tenant.eventually(lambda: tenant.status(job).get("reason") == SAID, SAID, timeout=10)
    told = message(tenant, job)
    assert FRAMEWORK in told
    assert "integrations.externalFrameworks" in told
    assert "kueue-manager-config" in told
    tenant.eventually(
        lambda: said(tenant, job) == ("Pending", SAID) and not left_over(tenant),
        "quota given back, and no pod or Workload left over",
        60,
    )
    assert tenant.status(job)["restarts"] == NO_RESTARTS
    tenant.eventually(lambda: tenant.used_gpus() == 0, "no quota used", 5)
    assert SAID in tenant.events(job)


def test_case_30_following_the_remedy_the_job_goes_on_by_itself(cluster: Cluster) -> None:
    cluster.use(Setup(told=False))
    tenant = cluster.tenant(4)
    job = tenant.submit()
    tenant.eventually(lambda: tenant.status(job).get("reason") == SAID, SAID, timeout=10)
    cluster.use(Setup())
    runs_and_completes(tenant, job)


def test_case_30_with_the_documented_configuration_pods_are_never_captured(
    cluster: Cluster,
) -> None:
    cluster.use(Setup())
    tenant = cluster.tenant(4)
    job = tenant.submit()
    runs_and_completes(tenant, job)
    assert tenant.status(job)["attempt"] == 1
    assert SAID not in tenant.events(job)


def test_case_30_without_the_right_to_read_jobs_their_pods_are_refused_and_the_job_says_why(
    cluster: Cluster,
) -> None:
    """Kueue waits for what it may not list, until the API server gives its webhook up (10 s).

    Also with ``manageJobsWithoutQueueName``, which the jobs with a queue then get over.
    """
    cluster.use(Setup(reads=False, takes_all=True))
    tenant = cluster.tenant(4)
    job = tenant.submit()
    tenant.eventually(lambda: RIGHTS.name in message(tenant, job), "the remedy", 25)
    assert tenant.status(job)["reason"] == "WebhookFailing"
    assert left_over(tenant) == []
    cluster.grant()
    tenant.wait(job, "Running", timeout=90, reason="AllRanksReady", ready="2/2")
    runs_and_completes(tenant, job)
