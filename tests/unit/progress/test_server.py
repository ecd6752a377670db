"""The endpoint over real HTTPS, with the reference client and without."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from goodput_operator.api.spec import Checkpoint
from goodput_operator.api.status import Move
from goodput_operator.progress.server import (
    MAX_BODY_BYTES,
    ProgressConfig,
    ProgressServer,
    answer,
)
from goodput_operator.worker.goodput_worker import Worker
from tests.unit.progress.fakes import KEY, FakeClient, FakeStore, job, pod

CHIEF, WORKER = pod("chief", 0), pod("worker", 1)
REPORT = {"attempt": 1, "role": "chief", "rank": 0, "step": 7}


class World:
    def __init__(self) -> None:
        self.client, self.store = FakeClient(), FakeStore(job(), CHIEF, WORKER)
        self.outcomes: list[str] = []
        self.server = ProgressServer(
            ProgressConfig(
                address="127.0.0.1:8443",
                namespace="goodput-system",
                listen_host="127.0.0.1",
                listen_port=0,
            ),
            self.store,
            self.client,
            on_outcome=self.outcomes.append,
        )

    def url(self, name: str = KEY.name, namespace: str = KEY.namespace) -> str:
        path = f"v1/namespaces/{namespace}/trainingjobs/{name}/progress"
        return f"https://127.0.0.1:{self.server.port}/{path}"

    async def post(
        self, body: Any, token: str | None = None, url: str | None = None
    ) -> tuple[int, Any]:
        token = self.client.admit(CHIEF) if token is None else token
        headers = {"Authorization": f"Bearer {token}"}
        trust = ssl.create_default_context(cadata=self.server.ca_pem)
        connector = aiohttp.TCPConnector(ssl=trust)
        sending = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.post(url or self.url(), **sending) as response,
        ):
            return response.status, await response.json()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.server.start()
    yield world
    await world.server.stop()


def test_the_answer_says_how_often_to_save_and_whether_to_save_now() -> None:
    assert answer(job(), 5) == {"durableStep": 5}
    found = job()
    assert found.spec is not None
    checkpoint = Checkpoint(uri="gs://bucket/runs", interval_seconds=90)
    saves = replace(found, spec=found.spec.model_copy(update={"checkpoint": checkpoint}))
    assert answer(saves, None) == {"durableStep": None, "checkpointIntervalSeconds": 90.0}
    now = "2026-01-31T08:00:00.500000Z"
    move = Move(reason="NodeCordoned", message="", nodes=("n1",), since=now, deadline=now)
    asked = replace(saves, status=saves.status.model_copy(update={"move": move}))
    assert answer(asked, 7)["checkpointRequest"] == 1769846400


async def test_report_is_answered_with_the_durable_step(world: World) -> None:
    assert await world.post(REPORT) == (200, {"durableStep": None})
    assert await world.post(REPORT | {"checkpointStep": 5}) == (200, {"durableStep": 5})
    assert await world.post(REPORT | {"step": 8}) == (200, {"durableStep": 5})
    assert world.client.applied[-1]["status"]["checkpoint"]["step"] == 5
    assert world.outcomes == ["accepted"] * 3


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"attempt": 2}, 400, ["attempt: 2", "is 1", "GOODPUT_ATTEMPT"]),
        ({"role": "worker"}, 400, ["role: 'worker'", "'chief'", "GOODPUT_ROLE"]),
        ({"rank": 1}, 400, ["rank: 1", "is 0", "GOODPUT_RANK"]),
        ({"step": -3}, 400, ["step: -3"]),
        ({"checkpointStep": 9}, 400, ["checkpointStep: 9", "beyond step 7"]),
    ],
)
async def test_refusal_names_field_value_and_remedy(
    world: World, body: dict[str, Any], status: int, words: list[str]
) -> None:
    code, answer = await world.post(REPORT | body)
    assert code == status
    for word in words:
        assert word in answer["error"]
    assert world.client.applied == []


async def test_only_rank_0_may_claim_durability(world: World) -> None:
    token = world.client.admit(WORKER)
    mine = {"attempt": 1, "role": "worker", "rank": 2, "step": 7}
    assert (await world.post(mine, token))[0] == 200
    status, answer = await world.post(mine | {"checkpointStep": 7}, token)
    assert status == 403
    assert "checkpointStep: 7 is claimed by rank 2" in answer["error"]


async def test_refusals_have_their_own_status(world: World) -> None:
    assert (await world.post(REPORT, token="bad"))[0] == 401
    assert (await world.post(REPORT, url=world.url(name="other")))[0] == 404
    assert (await world.post(b"{"))[0] == 400
    assert (await world.post(b" " * (MAX_BODY_BYTES + 1)))[0] == 413
    assert (await world.post(REPORT, url=world.url().replace("/v1/", "/v9/")))[0] == 404
    world.store.view = job(attempt=2)
    status, answer = await world.post(REPORT)
    assert status == 409
    assert "attempt: 1 is over" in answer["error"]
    world.client.failing = True
    assert (await world.post(REPORT, token="new"))[0] == 503


def steps(world: World) -> dict[tuple[str, int], int]:
    """The newest step of each rank that a decision would see."""
    heard = world.server.heard()
    assert heard is not None
    return {rank: each.step for gang in heard.gangs.values() for rank, each in gang.ranks.items()}


async def test_what_each_rank_says_is_remembered_by_its_role_and_rank(world: World) -> None:
    await world.post(REPORT)
    token = world.client.admit(WORKER)
    await world.post({"attempt": 1, "role": "worker", "rank": 2, "step": 9}, token)
    assert steps(world) == {("chief", 0): 7, ("worker", 1): 9}


@pytest.mark.parametrize("body", [{"step": -1}, {"attempt": 2}, {"step": 10**11}])
async def test_what_is_refused_is_not_remembered(world: World, body: dict[str, Any]) -> None:
    assert (await world.post(REPORT | body))[0] == 400
    assert steps(world) == {}


async def test_a_step_is_remembered_though_the_status_cannot_be_written(world: World) -> None:
    token = world.client.admit(CHIEF)
    await world.post(REPORT, token)
    world.client.failing = True
    assert (await world.post(REPORT | {"step": 8, "checkpointStep": 8}, token))[0] == 503
    assert steps(world) == {("chief", 0): 8}


async def test_only_what_it_could_not_judge_makes_it_blind(world: World) -> None:
    before = world.server.heard()
    await world.post(REPORT, token="bad")
    await world.post(REPORT | {"attempt": 2})
    assert before is not None
    assert world.server.heard() == before
    world.client.failing = True
    await world.post(REPORT, token="new")
    after = world.server.heard()
    assert after is not None
    assert after.since > before.since


async def test_a_server_that_has_stopped_hears_nothing() -> None:
    world = World()
    assert world.server.heard() is None
    await world.server.start()
    assert world.server.heard() is not None
    await world.server.stop()
    assert world.server.heard() is None


async def test_pod_that_floods_is_slowed_down(world: World) -> None:
    codes = [code for code, _ in await asyncio.gather(*(world.post(REPORT) for _ in range(40)))]
    assert 429 in codes
    assert codes.count(200) >= 20


async def test_certificate_is_verified(world: World) -> None:
    stranger = World()
    await stranger.server.prepare()
    trust = ssl.create_default_context(cadata=stranger.server.ca_pem)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.post(world.url(), json=REPORT)


async def test_stop_writes_what_was_not_written() -> None:
    world = World()
    await world.server.start()
    for step in (1, 2, 3):
        await world.post(REPORT | {"step": step})
    assert world.client.applied[-1]["status"]["progress"]["step"] == 1
    await world.server.stop()
    assert world.client.applied[-1]["status"]["progress"]["step"] == 3


def client(world: World, folder: Path, attempt: int) -> Worker:
    """Rank 0 of an attempt, as its pod's environment describes it."""
    ca_file, token_file = folder / "ca.crt", folder / f"token-{attempt}"
    ca_file.write_text(world.server.ca_pem)
    view = pod("chief", 0, attempt)
    world.store.pods[view.uid] = view
    token_file.write_text(world.client.admit(view))
    return Worker.from_env(
        {
            "GOODPUT_ATTEMPT": str(attempt),
            "GOODPUT_ROLE": "chief",
            "GOODPUT_RANK": "0",
            "GOODPUT_WORLD_SIZE": "3",
            "GOODPUT_CHECKPOINT_DIR": str(folder / "digits-0b1f3c1e"),
            "GOODPUT_PROGRESS_URL": world.url(),
            "GOODPUT_PROGRESS_TOKEN_FILE": str(token_file),
            "GOODPUT_PROGRESS_CA_FILE": str(ca_file),
        }
    )


def train(worker: Worker, first: int, last: int) -> None:
    for step in range(first, last + 1):
        worker.report(step, total_steps=20, loss=1.0 / step)
    with worker.checkpoint(last) as path:
        (path / "state").write_text(str(last))


async def test_reference_client_saves_and_is_believed(world: World, tmp_path: Path) -> None:
    """The worker's own journey: save under attempt 1, be replaced, resume under attempt 2."""
    first = client(world, tmp_path, 1)
    assert first.resume() is None
    await asyncio.to_thread(train, first, 1, 10)
    status = world.client.applied[-1]["status"]
    assert status["checkpoint"]["step"] == 10, "noted before the save returned"
    assert status["checkpoint"]["stallSeconds"] > 0

    world.store.view = job(attempt=2)
    second = client(world, tmp_path, 2)
    found = second.resume()
    assert found is not None
    assert (found.step, (found.path / "state").read_text()) == (10, "10")
    await asyncio.to_thread(train, second, 11, 20)
    await asyncio.to_thread(second.close)
    progress = world.client.applied[-1]["status"]["progress"]
    assert (progress["attempt"], progress["step"], progress["resumedFromStep"]) == (2, 20, 10)
    assert progress["firstStepAt"]

    first.report(11)
    await asyncio.to_thread(first.close)
    assert first.superseded
    assert first.stop_requested


async def test_damaged_checkpoint_is_passed_over_and_the_status_says_so(
    world: World, tmp_path: Path
) -> None:
    first = client(world, tmp_path, 1)
    await asyncio.to_thread(train, first, 1, 5)
    await asyncio.to_thread(train, first, 6, 10)
    (tmp_path / "digits-0b1f3c1e" / "attempt-1" / "step-0000000010" / "state").write_text("11")

    world.store.view = job(attempt=2)
    second = client(world, tmp_path, 2)
    found = second.resume()
    assert found is not None
    assert (found.step, (found.path / "state").read_text()) == (5, "5")
    await asyncio.to_thread(second.close)
    status = world.client.applied[-1]["status"]
    assert (status["progress"]["resumedFromStep"], status["progress"]["corruptStep"]) == (5, 10)
    assert status["checkpoint"]["step"] == 5
    await asyncio.to_thread(first.close)
