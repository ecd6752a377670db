"""Who sends a report: a pod, by its own projected service-account token.

The API server alone says whether a token is good and whose it is (TokenReview, for our audience).
Its verdicts are cached by the token's SHA-256; the token itself is never kept nor logged.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from goodput_operator import constants as c
from goodput_operator.builders import ranks
from goodput_operator.domain.model import JobKey, JobView, PodView
from goodput_operator.domain.placement import codec
from goodput_operator.kube.errors import ApiError
from goodput_operator.progress.ports import ProgressClient, ProgressStore
from goodput_operator.progress.refusal import Outcome, RefusedError

EXTRA_POD_NAME = "authentication.kubernetes.io/pod-name"
EXTRA_POD_UID = "authentication.kubernetes.io/pod-uid"
ACCEPTED_SECONDS = 300.0
"""Longest time for which a good verdict is believed."""
OPAQUE_SECONDS = 30.0
"""The same, of a token whose expiry cannot be read."""
REFUSED_SECONDS = 10.0
MAX_TOKEN_LENGTH = 16_384
MAX_REVIEWS = 16
"""TokenReviews made at the same time."""
MAX_WAITING = 2_000
"""Different tokens whose review is under way or waiting."""
CACHE_SIZE = 20_000


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token was issued to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Sender:
    """A pod of the job's current attempt."""

    job: JobView
    pod: PodView
    rank: int
    """Its rank over all roles."""


class _Cache(Generic[T]):
    """Values by token digest, each until its deadline; the oldest give way beyond ``size``."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size, self._clock = size, clock
        self._entries: OrderedDict[bytes, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> T | None:
        entry = self._entries.get(digest)
        if entry is None or self._clock() >= entry[1]:
            self._entries.pop(digest, None)
            return None
        self._entries.move_to_end(digest)
        return entry[0]

    def put(self, digest: bytes, value: T, seconds: float) -> None:
        if seconds > 0:
            self._entries[digest] = (value, self._clock() + seconds)
            self._entries.move_to_end(digest)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)


class Authenticator:
    """Tokens to pods. One review per token at a time, however many requests carry it."""

    def __init__(
        self,
        client: ProgressClient,
        *,
        cache_size: int = CACHE_SIZE,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._wall_clock = wall_clock
        # Apart, so that a flood of bad tokens does not push out the good ones.
        self._accepted: _Cache[PodIdentity] = _Cache(cache_size, clock)
        self._refused: _Cache[str] = _Cache(cache_size, clock)
        self._running: dict[bytes, asyncio.Task[PodIdentity]] = {}
        self._slots = asyncio.Semaphore(MAX_REVIEWS)

    def __len__(self) -> int:
        """Verdicts held."""
        return len(self._accepted) + len(self._refused)

    async def identify(
        self, authorization: str | None, before_review: Callable[[], None] = lambda: None
    ) -> PodIdentity:
        """The pod that an ``Authorization`` header speaks for. Raises RefusedError.

        ``before_review`` is called when the API server must be asked, and may refuse.
        """
        token = _bearer(authorization)
        digest = hashlib.sha256(token.encode()).digest()
        if (identity := self._accepted.get(digest)) is not None:
            return identity
        if (reason := self._refused.get(digest)) is not None:
            raise RefusedError(Outcome.UNAUTHENTICATED, reason)
        task = self._running.get(digest)
        if task is None:
            if len(self._running) >= MAX_WAITING:
                raise RefusedError(
                    Outcome.UNAVAILABLE, "too many tokens are being reviewed", retry_after=2
                )
            before_review()
            task = asyncio.create_task(self._review(token, digest))
            self._running[digest] = task
            task.add_done_callback(lambda done: self._finished(digest, done))
        # A sender that hangs up must not cancel the review that others wait for.
        return await asyncio.shield(task)

    def _finished(self, digest: bytes, task: "asyncio.Task[PodIdentity]") -> None:
        self._running.pop(digest, None)
        if not task.cancelled():
            task.exception()  # Seen by those who waited; by nobody, if they all hung up.

    async def close(self) -> None:
        """Drop the reviews that are under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _review(self, token: str, digest: bytes) -> PodIdentity:
        left = OPAQUE_SECONDS
        if (expiry := token_expiry(token)) is not None:
            left = min(ACCEPTED_SECONDS, expiry - self._wall_clock())
        async with self._slots:
            try:
                status = await self._client.token_review(token, [c.PROGRESS_AUDIENCE])
            except ApiError as error:
                raise RefusedError(
                    Outcome.UNAVAILABLE, f"the token was not reviewed: {error}", retry_after=2
                ) from error
        try:
            identity = identity_of(status)
        except RefusedError as refusal:
            self._refused.put(digest, refusal.message, REFUSED_SECONDS)
            raise
        self._accepted.put(digest, identity, left)
        return identity


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or not token.isascii():
        raise RefusedError(
            Outcome.UNAUTHENTICATED,
            "Authorization: missing; send 'Bearer' and the token of GOODPUT_PROGRESS_TOKEN_FILE",
        )
    if len(token) > MAX_TOKEN_LENGTH:
        raise RefusedError(
            Outcome.UNAUTHENTICATED,
            f"Authorization: a token of {len(token)} bytes; at most {MAX_TOKEN_LENGTH} are read",
        )
    return token


def token_expiry(token: str) -> float | None:
    """The ``exp`` claim of a JWT, POSIX seconds, unverified: it may only shorten what is cached."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        expiry = json.loads(base64.urlsafe_b64decode(padded))["exp"]
        return float(expiry)
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error, RecursionError):
        return None


def identity_of(status: Mapping[str, Any]) -> PodIdentity:
    """The pod that a TokenReview's status names. Raises RefusedError when it names none for us."""
    remedy = "send the token of GOODPUT_PROGRESS_TOKEN_FILE, read anew for each report"
    if status.get("authenticated") is not True:
        reason = status.get("error") or "not authenticated"
        raise RefusedError(Outcome.UNAUTHENTICATED, f"token: {reason}; {remedy}")
    if c.PROGRESS_AUDIENCE not in (status.get("audiences") or ()):
        raise RefusedError(
            Outcome.UNAUTHENTICATED,
            f"token: its audience is not {c.PROGRESS_AUDIENCE!r}; {remedy}",
        )
    user = status.get("user") or {}
    extra = user.get("extra") or {}
    name, uid = list(extra.get(EXTRA_POD_NAME) or []), list(extra.get(EXTRA_POD_UID) or [])
    account, _, _ = str(user.get("username", "")).rpartition(":")
    prefix, _, namespace = account.rpartition(":")
    if len(name) != 1 or len(uid) != 1 or prefix != "system:serviceaccount":
        raise RefusedError(Outcome.UNAUTHENTICATED, f"token: it is bound to no pod; {remedy}")
    return PodIdentity(namespace, str(name[0]), str(uid[0]))


def authorise(identity: PodIdentity, key: JobKey, store: ProgressStore) -> Sender:
    """The sender, if the pod belongs to the current attempt of the job. Raises RefusedError."""
    job = store.job(key)
    pod = store.pod_by_uid(identity.uid)
    if pod is None:
        raise RefusedError(
            Outcome.FORBIDDEN,
            f"pod {identity.namespace}/{identity.name}: it belongs to no TrainingJob that is "
            f"known here; if it was just created, report again in a moment",
            retry_after=2,
        )
    if job is None:
        raise RefusedError(Outcome.GONE, f"TrainingJob {key}: there is none")
    is_itself = (pod.namespace, pod.name) == (identity.namespace, identity.name)
    if not is_itself or pod.namespace != key.namespace or pod.job_uid != job.uid:
        raise RefusedError(
            Outcome.FORBIDDEN,
            f"pod {identity.namespace}/{identity.name}: it is no pod of TrainingJob {key}; "
            f"post to GOODPUT_PROGRESS_URL as it was set in this pod",
        )
    _check_attempt(job, pod)
    try:
        rank = ranks.world_rank(job, pod.attempt, pod.role, pod.rank)
    except ValueError as error:
        raise RefusedError(Outcome.UNAVAILABLE, str(error), retry_after=5) from error
    return Sender(job, pod, rank)


def _is_replaced(job: JobView, pod: PodView) -> bool:
    placement = job.status.placement
    if placement is None or placement.attempt != pod.attempt:
        return False
    try:
        newest = codec.incarnations(placement).get((pod.role, pod.rank), 0)
    except ValueError:
        return False
    return pod.incarnation < newest


def _check_attempt(job: JobView, pod: PodView) -> None:
    current = job.status.attempt
    if pod.attempt < current:
        raise RefusedError(
            Outcome.SUPERSEDED,
            f"attempt: {pod.attempt} is over, attempt {current} of TrainingJob {job.key} has "
            f"begun; stop this rank",
        )
    if pod.attempt == current and _is_replaced(job, pod):
        raise RefusedError(
            Outcome.SUPERSEDED,
            f"pod {pod.name}: its rank was replaced by another pod; stop this one",
        )
    if pod.attempt > current:
        raise RefusedError(
            Outcome.UNAVAILABLE,
            f"attempt: {pod.attempt} of TrainingJob {job.key} is not known here yet",
            retry_after=1,
        )
