"""Whose reports are believed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from goodput_operator.api.status import TrainingJobStatus
from goodput_operator.domain.model import JobKey
from goodput_operator.progress import auth
from goodput_operator.progress.auth import Authenticator, PodIdentity, authorise, token_expiry
from goodput_operator.progress.refusal import Outcome, RefusedError
from tests.unit.progress.fakes import (
    KEY,
    NOW,
    Clock,
    FakeClient,
    FakeStore,
    job,
    pod,
    review_of,
    token_for,
)

POD = pod()
IDENTITY = PodIdentity(POD.namespace, POD.name, POD.uid)


class World:
    def __init__(self, **options: Any) -> None:
        self.client, self.clock = FakeClient(), Clock()
        self.auth = Authenticator(self.client, clock=self.clock, wall_clock=self.clock, **options)

    async def identify(self, token: str) -> PodIdentity:
        return await self.auth.identify(f"Bearer {token}")


async def test_token_of_a_pod_names_it() -> None:
    world = World()
    assert await world.identify(world.client.admit(POD)) == IDENTITY


async def test_verdict_is_believed_for_five_minutes() -> None:
    world = World()
    token = world.client.admit(POD)
    for seconds, reviews in ((0, 1), (299, 1), (2, 2)):
        world.clock.now += seconds
        await world.identify(token)
        assert len(world.client.reviewed) == reviews


async def test_verdict_ends_with_the_token() -> None:
    world = World()
    token = token_for(POD.name, expiry=NOW + 60)
    world.client.reviews[token] = review_of(POD)
    await world.identify(token)
    world.clock.now += 61
    world.client.reviews[token] = {"authenticated": False, "error": "expired"}
    with pytest.raises(RefusedError, match="expired"):
        await world.identify(token)


async def test_expiry_can_only_shorten_what_is_believed() -> None:
    world = World()
    token = token_for(POD.name, expiry=NOW + 10**9)
    world.client.reviews[token] = review_of(POD)
    await world.identify(token)
    world.clock.now += 301
    await world.identify(token)
    assert len(world.client.reviewed) == 2


async def test_refusal_is_remembered_briefly() -> None:
    world = World()
    for seconds, reviews in ((0, 1), (9, 1), (2, 2)):
        world.clock.now += seconds
        with pytest.raises(RefusedError, match="invalid signature") as refused:
            await world.identify("bad")
        assert refused.value.status == 401
        assert len(world.client.reviewed) == reviews


async def test_api_server_away_is_no_verdict() -> None:
    world = World()
    token = world.client.admit(POD)
    world.client.failing = True
    with pytest.raises(RefusedError) as refused:
        await world.identify(token)
    assert refused.value.outcome is Outcome.UNAVAILABLE
    world.client.failing = False
    assert await world.identify(token) == IDENTITY


async def test_concurrent_requests_share_one_review() -> None:
    world = World()
    token = world.client.admit(POD)
    assert set(await asyncio.gather(*(world.identify(token) for _ in range(50)))) == {IDENTITY}
    assert len(world.client.reviewed) == 1


async def test_sender_that_hangs_up_does_not_cancel_the_review_of_others() -> None:
    release = asyncio.Event()

    class Slow(FakeClient):
        async def token_review(self, token: str, audiences: Sequence[str]) -> dict[str, Any]:
            await release.wait()
            return await super().token_review(token, audiences)

    client = Slow()
    authenticator = Authenticator(client)
    header = f"Bearer {client.admit(POD)}"
    first = asyncio.create_task(authenticator.identify(header))
    second = asyncio.create_task(authenticator.identify(header))
    await asyncio.sleep(0)
    first.cancel()
    release.set()
    assert await second == IDENTITY
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)


async def test_cache_is_bounded() -> None:
    world = World(cache_size=10)
    for rank in range(30):
        await world.identify(world.client.admit(pod(rank=rank)))
        with pytest.raises(RefusedError):
            await world.identify(f"bad-{rank}")
    assert len(world.auth) == 20


async def test_flood_of_bad_tokens_does_not_push_out_good_ones() -> None:
    world = World(cache_size=10)
    token = world.client.admit(POD)
    await world.identify(token)
    for number in range(50):
        with pytest.raises(RefusedError):
            await world.identify(f"bad-{number}")
    reviews = len(world.client.reviewed)
    await world.identify(token)
    assert len(world.client.reviewed) == reviews


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer \xe9", "Bearer " + "x" * 20_000],
)
async def test_header_without_a_token_is_not_reviewed(header: str | None) -> None:
    world = World()
    with pytest.raises(RefusedError, match="Authorization") as refused:
        await world.auth.identify(header)
    assert refused.value.status == 401
    assert world.client.reviewed == []
    assert "x" * 100 not in refused.value.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"audiences": ["https://kubernetes.default.svc"]}, "audience"),
        ({"audiences": None}, "audience"),
        ({"authenticated": "true"}, "not authenticated"),
        ({"user": {"username": "system:serviceaccount:training:default"}}, "bound to no pod"),
        ({"user": {"username": "jane", "extra": review_of(POD)["user"]["extra"]}}, "no pod"),
        (
            {
                "user": {
                    "username": "system:serviceaccount:training:default",
                    "extra": {auth.EXTRA_POD_NAME: [POD.name]},
                }
            },
            "bound to no pod",
        ),
    ],
)
async def test_other_tokens_of_the_cluster_are_refused(changes: dict[str, Any], words: str) -> None:
    world = World()
    world.client.reviews["token"] = review_of(POD, **changes)
    with pytest.raises(RefusedError, match=words) as refused:
        await world.identify("token")
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c", "a.bnVsbA.c", "a.e30.c", "a.W10.c", "a.eyJleHAiOiJ4In0.c"]
)
def test_unreadable_expiry_is_none(token: str) -> None:
    assert token_expiry(token) is None


def test_pod_of_the_current_attempt_may_report_under_its_world_rank() -> None:
    worker = pod("worker", 1)
    identity = PodIdentity(worker.namespace, worker.name, worker.uid)
    assert authorise(identity, KEY, FakeStore(job(), worker)).rank == 2


def refusal(store: FakeStore, key: JobKey = KEY, identity: PodIdentity = IDENTITY) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        authorise(identity, key, store)
    return refused.value


def test_unknown_pod_is_refused() -> None:
    assert refusal(FakeStore(job())).status == 403


def test_unknown_job_is_gone() -> None:
    assert refusal(FakeStore(None, POD)).status == 404


@pytest.mark.parametrize(
    "other",
    [
        pod(job_uid="of another job, or of one of the same name before"),
        pod(namespace="other"),
        pod(name="digits-a1-chief-1", uid=POD.uid),
    ],
)
def test_pod_of_another_job_is_refused(other: Any) -> None:
    assert "is no pod of TrainingJob" in refusal(FakeStore(job(), other)).message


def test_pod_of_another_namespace_is_refused() -> None:
    key = JobKey("other", KEY.name)
    assert refusal(FakeStore(job(key=key), POD), key).status == 403


def test_older_attempt_is_refused() -> None:
    refused = refusal(FakeStore(job(attempt=2), POD))
    assert refused.status == 409
    assert "attempt: 1 is over, attempt 2" in refused.message


def test_attempt_that_is_not_known_yet_is_asked_to_come_again() -> None:
    view = job(status=TrainingJobStatus(attempt=0))
    refused = refusal(FakeStore(view, POD))
    assert refused.status == 503
    assert refused.retry_after == 1


def test_job_without_readable_spec_is_asked_to_come_again() -> None:
    assert refusal(FakeStore(job(spec=None, spec_error="roles: missing"), POD)).status == 503
