"""One key at a time; what fails is shown on the job, and tried again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from goodput_operator import constants as c
from goodput_operator.domain.model import JobKey, Snapshot
from goodput_operator.domain.plan import JobEvent, Plan
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy
from goodput_operator.kube.errors import Forbidden, Invalid, Transient, WebhookFailed
from goodput_operator.kube.paths import PRIORITY_CLASSES, TRAINING_JOBS
from goodput_operator.runtime import worker as worker_module
from goodput_operator.runtime.executor import Executor
from goodput_operator.runtime.queue import WorkQueue
from goodput_operator.runtime.store import Store
from goodput_operator.runtime.worker import Worker
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient, stored_job

KEY = JobKey(raws.NAMESPACE, "digits")


class Counts:
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.reconciled_keys = 0

    def reconciled(self, seconds: float, waited: float) -> None:
        self.reconciled_keys += 1

    def failed(self, kind: str) -> None:
        self.errors.append(kind)


class Operation:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.queue: WorkQueue[JobKey] = WorkQueue(asyncio.get_running_loop().time)
        self.store = Store(self.queue.add)
        self.counts = Counts()
        executor = Executor(self.client, self.store, lambda: None)  # type: ignore[arg-type]
        self.worker = Worker(self.store, self.queue, executor, DEFAULT_POLICY, self.counts)

    def add_job(self) -> None:
        self.store.put_job(self.client.add(TRAINING_JOBS, raws.job()))

    def running(self) -> dict[str, str]:
        """The Running condition, as the API server has it."""
        conditions = stored_job(self.client)["status"].get("conditions", [])
        found: dict[str, str] = next((e for e in conditions if e["type"] == "Running"), {})
        return found


@asynccontextmanager
async def working() -> AsyncIterator[Operation]:
    operation = Operation()
    task = asyncio.create_task(operation.worker.run())
    try:
        yield operation
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: object, seconds: float = 3.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.005)


async def test_a_new_job_gets_its_workload_and_a_status() -> None:
    async with working() as operation:
        operation.add_job()
        await until(lambda: operation.client.count("create", "workloads"))
        await until(lambda: stored_job(operation.client)["status"].get("phase") == "Queued")
        assert operation.counts.errors == []


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("create workloads", "exceeded quota"),
        Invalid("create workloads", "spec.podSets is refused"),
    ],
)
async def test_a_refused_create_is_a_condition_that_says_what_to_do(error: Forbidden) -> None:
    async with working() as operation:
        operation.client.refuse["create", "workloads"] = error
        operation.add_job()
        await until(lambda: operation.running().get("reason") == "APIError")
        message = operation.running()["message"]
        assert str(error) in message
        assert error.remedy is not None
        assert error.remedy in message


async def test_the_condition_goes_once_the_create_succeeds() -> None:
    async with working() as operation:
        operation.client.refuse["create", "workloads"] = Forbidden("create workloads", "no")
        operation.add_job()
        await until(lambda: operation.running().get("reason") == "APIError")
        operation.client.refuse.clear()
        await until(lambda: operation.running().get("reason") == "WaitingForQuota")
        assert operation.store.error(KEY) is None


async def test_three_failed_creates_and_the_workload_is_made_all_the_same() -> None:
    async with working() as operation:
        timeout = Transient("create workloads", "failed calling webhook: deadline exceeded")
        operation.client.refuse["create", "workloads"] = timeout
        operation.add_job()
        await until(lambda: operation.client.count("create", "workloads") >= 3)
        operation.client.refuse.clear()
        await until(lambda: "workloads" in {plural for plural, _ in operation.client.objects})


async def test_a_request_that_hangs_is_told_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "HANGING_SECONDS", 0.05)
    async with working() as operation:
        held, create = asyncio.Event(), operation.client.create

        async def slow_create(*arguments: object) -> object:
            await held.wait()
            return await create(*arguments)  # type: ignore[arg-type]

        operation.client.create = slow_create  # type: ignore[assignment]
        operation.add_job()
        await until(lambda: "not done within" in operation.running().get("message", ""))
        message = operation.running()["message"]
        assert message.startswith("create workload tj-digits-")
        assert "see that Kueue runs" in message
        held.set()
        await until(lambda: operation.running().get("reason") == "WaitingForQuota")
        assert operation.store.error(KEY) is None
        assert operation.counts.errors == []


async def test_the_same_refusal_again_does_not_hide_what_has_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with working() as operation:
        operation.client.refuse["create", "workloads"] = WebhookFailed("create workloads", "no")
        operation.add_job()
        await until(lambda: operation.running().get("reason") == "WebhookFailing")
        applied = operation.client.count("apply", "trainingjobs")
        tries = operation.client.count("create", "workloads")
        await until(lambda: operation.client.count("create", "workloads") > tries)
        assert operation.client.count("apply", "trainingjobs") == applied, "nothing has"
        raw = stored_job(operation.client)
        operation.store.put_job(
            operation.client.add(
                TRAINING_JOBS, {**raw, "metadata": {**raw["metadata"], "generation": 7}}
            )
        )
        await until(
            lambda: stored_job(operation.client)["status"].get("observedGeneration") == 7, 6
        )


async def test_a_status_that_could_not_be_written_is_written_with_the_next_try() -> None:
    async with working() as operation:
        operation.client.refuse["create", "workloads"] = Forbidden("create workloads", "no")
        operation.client.refuse["apply", "trainingjobs"] = Transient("apply", "no answer")
        operation.add_job()
        await until(lambda: operation.client.count("create", "workloads") >= 2)
        del operation.client.refuse["apply", "trainingjobs"]
        await until(lambda: operation.running().get("reason") == "APIError", 10)


async def test_a_bug_in_one_job_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def decide(snapshot: Snapshot, key: JobKey, now: float, policy: Policy) -> Plan:
        if key.name == "digits":
            raise ZeroDivisionError
        done.append(key.name)
        return Plan()

    monkeypatch.setattr(worker_module, "decide", decide)
    async with working() as operation:
        operation.add_job()
        operation.store.put_job(operation.client.add(TRAINING_JOBS, raws.job(name="b", uid="u2")))
        await until(lambda: done and "bug" in operation.counts.errors)
    assert "ZeroDivisionError" in caplog.text


async def test_a_plan_asks_to_be_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 0

    def decide(snapshot: Snapshot, key: JobKey, now: float, policy: Policy) -> Plan:
        nonlocal times
        times += 1
        return Plan(requeue_after=0.02)

    monkeypatch.setattr(worker_module, "decide", decide)
    async with working() as operation:
        operation.add_job()
        await until(lambda: times >= 3)


async def test_a_stopping_worker_finishes_what_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        worker_module, "decide", lambda *_: Plan(events=(JobEvent("Normal", "Queued", "x"),))
    )
    async with working() as operation:
        held, begun = asyncio.Event(), asyncio.Event()
        create = operation.client.create

        async def slow_create(*arguments: object) -> object:
            begun.set()
            await held.wait()
            return await create(*arguments)  # type: ignore[arg-type]

        operation.client.create = slow_create  # type: ignore[assignment]
        operation.add_job()
        await asyncio.wait_for(begun.wait(), 1)
        assert operation.worker.busy_seconds is not None
        draining = asyncio.create_task(operation.worker.drain(1))
        await asyncio.sleep(0.02)
        assert not draining.done()
        held.set()
        await asyncio.wait_for(draining, 1)
        assert operation.client.count("create", "events") == 1
        assert operation.worker.busy_seconds is None


async def test_draining_is_bounded() -> None:
    async with working() as operation:
        held = asyncio.Event()

        async def stuck(*_: object) -> object:
            return await held.wait()

        operation.client.create = stuck  # type: ignore[assignment]
        operation.add_job()
        await until(lambda: operation.worker.busy_seconds is not None)
        async with asyncio.timeout(1):
            await operation.worker.drain(0.05)


async def test_an_unknown_priority_class_is_said_and_looked_for_until_it_is_there() -> None:
    async with working() as operation:
        raw = raws.job()
        raw["metadata"]["labels"][c.LABEL_PRIORITY_CLASS] = "urgent"
        operation.store.put_job(operation.client.add(TRAINING_JOBS, raw))
        await until(lambda: operation.running().get("reason") == "UnknownPriorityClass")
        message = operation.running()["message"]
        assert "WorkloadPriorityClass urgent" in message
        assert f"create it, or correct the label {c.LABEL_PRIORITY_CLASS}" in message
        operation.client.add(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 7})
        await until(lambda: operation.running().get("reason") == "WaitingForQuota")
        tries = operation.client.count("get", "workloadpriorityclasses")
        assert tries < 10
