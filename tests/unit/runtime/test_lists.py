"""Lists bring the store up to date, whatever the watches have missed."""

import asyncio
from typing import Any

import pytest

from goodput_operator import constants as c
from goodput_operator.domain.model import JobKey
from goodput_operator.kube.errors import Forbidden, NotFound, Transient
from goodput_operator.runtime.checks import keep_active, needs_activation
from goodput_operator.runtime.foreign_watch import list_foreign
from goodput_operator.runtime.kinds import JOBS, NODES, PODS, list_all
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient

KEY = JobKey(raws.NAMESPACE, "digits")


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def store() -> Store:
    return Store(lambda key, delay=0.0: None)


async def test_a_list_adds_what_was_missed_and_drops_what_vanished(
    client: FakeClient, store: Store
) -> None:
    store.put_job(raws.job(version=10))
    store.put_pod(raws.pod(version=20))
    client.lists["trainingjobs"] = ([raws.job(version=10)], "40")
    client.lists["pods"] = ([raws.pod(version=30, name="digits-a1-worker-1", uid="p2")], "40")
    await list_all(client, store)  # type: ignore[arg-type]
    assert [pod.uid for pod in store.snapshot().pods[KEY]] == ["p2"]


async def test_a_list_does_not_drop_what_was_created_while_it_was_read(
    client: FakeClient, store: Store
) -> None:
    store.put_pod(raws.pod(version=41))
    client.lists["pods"] = ([], "40")
    await list_all(client, store)  # type: ignore[arg-type]
    assert len(store.snapshot().pods[KEY]) == 1


async def test_kinds_that_are_not_installed_are_said_and_passed_over(
    client: FakeClient, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for plural in ("workloads", "resourceflavors", "admissionchecks"):
        client.lists[plural] = NotFound(f"list {plural}", "not found")
    client.lists["nodes"] = ([raws.node()], "40")
    await list_all(client, store)  # type: ignore[arg-type]
    assert list(store.snapshot().nodes) == ["node-1"]
    assert "workloads.kueue.x-k8s.io is not installed" in caplog.text


async def test_an_object_that_trips_a_bug_does_not_hide_the_others(
    client: FakeClient, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    strange = raws.node(name="strange")
    strange["status"]["allocatable"] = {"cpu": "many"}
    client.lists["nodes"] = ([strange, raws.node(name="plain")], "40")
    await list_all(client, store)  # type: ignore[arg-type]
    assert "plain" in store.snapshot().nodes


async def test_only_the_watched_namespaces_are_listed(client: FakeClient, store: Store) -> None:
    elsewhere = raws.job(name="other", uid="u2")
    elsewhere["metadata"]["namespace"] = "team-b"
    client.lists["trainingjobs"] = ([raws.job(), elsewhere], "40")
    await list_all(client, store, ("team-b",))  # type: ignore[arg-type]
    assert [str(job.key) for job in store.all_jobs()] == ["team-b/other"]


async def test_with_some_namespaces_watched_the_jobs_of_others_are_foreign(
    client: FakeClient, store: Store
) -> None:
    ours, theirs = raws.pod(), raws.pod(name="theirs", uid="p2")
    theirs["metadata"]["namespace"] = "team-b"
    client.lists["pods"] = ([ours, theirs], "40")
    assert await list_foreign(client, store, (raws.NAMESPACE,)) == "40"  # type: ignore[arg-type]
    assert store.snapshot().foreign_usage["node-1"].get("pods") == 1000


def test_an_event_of_a_watch_is_taken_by_its_type(store: Store) -> None:
    for kind, raw in ((JOBS, raws.job()), (NODES, raws.node()), (PODS, raws.pod())):
        kind.take(store, None, raw)
    kind = PODS
    assert len(store.snapshot().pods[KEY]) == 1
    kind.take(store, "DELETED", raws.pod(version=21))
    assert KEY not in store.snapshot().pods


# Admission checks


@pytest.mark.parametrize(
    ("conditions", "needed"),
    [
        ([], True),
        ([{"type": "Active", "status": "False"}], True),
        ([{"type": "Other", "status": "True"}], True),
        ([{"type": "Active", "status": "True"}], False),
    ],
)
def test_a_check_is_activated_when_it_is_not_active(conditions: Any, needed: bool) -> None:
    assert needs_activation(raws.check(conditions=conditions)) is needed


async def test_our_checks_are_kept_active_and_those_of_others_left_alone(
    client: FakeClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodput_operator.runtime.checks.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("goodput_operator.runtime.checks.RETRY_SECONDS", 0.01)
    from goodput_operator.kube.paths import ADMISSION_CHECKS

    foreign = raws.check(controller="kueue.x-k8s.io/provisioning-request")
    foreign["metadata"] |= {"name": "provisioning", "uid": "other"}
    for raw in (raws.check(), foreign):
        store.put_check(client.add(ADMISSION_CHECKS, raw))
    client.refuse["patch", "admissionchecks"] = Transient("patch", "no answer")
    task = asyncio.create_task(keep_active(client, store))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    client.refuse.clear()
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not needs_activation(client.objects["admissionchecks", "power"])
    assert needs_activation(client.objects["admissionchecks", "provisioning"])
    assert {name for verb, _, name in client.calls if verb == "patch"} == {"power"}


async def test_a_list_that_is_forbidden_says_so(client: FakeClient, store: Store) -> None:
    client.lists["pods"] = Forbidden("list pods", "no right")
    with pytest.raises(Forbidden):
        await list_all(client, store)  # type: ignore[arg-type]
    assert PODS.selector == c.LABEL_JOB_UID
