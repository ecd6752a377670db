"""One HTTP request to the API server: authentication, time-outs, errors, retries."""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
)

from goodput_operator.kube.errors import ApiError, Transient, from_response
from goodput_operator.kube.session import Access, observed

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
PATIENCE_SECONDS = 20.0
"""Seconds. What takes longer goes back to the work queue, so that other jobs are not held up."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the API server."""

    verb: str
    """The verb of the right that it takes: ``list``, ``create``, …"""
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    content_type: str = JSON

    @property
    def plural(self) -> str:
        """The kind that it is about."""
        return plural_of(self.path)

    def __str__(self) -> str:
        return describe(self.verb, self.path)


class Observer(Protocol):
    """Counts what happens to requests."""

    def answered(self, verb: str, resource: str, code: int) -> None:
        """A request about objects of this plural got this HTTP status code; 0: no answer."""

    def retried(self, verb: str, resource: str) -> None:
        """A request is sent again."""


class Transport:
    """Sends requests with the credentials of a kubernetes client configuration."""

    def __init__(self, api: ApiClient, observer: Observer, timeout_seconds: float) -> None:
        self._api = api
        self._observer = observer
        self._timeout = timeout_seconds

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def access(self, listed: Callable[[str], None]) -> Access:
        """A session with the same credentials; a token from a file is read anew when old.

        ``listed`` is called with the plural of what is listed through it.
        """
        used = self._api.configuration
        authorization = await used.get_api_key_with_prefix("BearerToken", alias="authorization")
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._api.rest_client.ssl_context, limit=0),
            headers={"Authorization": authorization} if authorization else None,
            proxy=used.proxy,
            trust_env=True,
            trace_configs=[observed(listed)],
        )
        return Access(used.host, session)

    async def send(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """The object that the server answers with. Raises ApiError, after retries if transient."""
        request = Request(verb, method, path, query, body, content_type)
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Transient),
            stop=stop_after_attempt(ATTEMPTS) | stop_after_delay(PATIENCE_SECONDS),
            wait=_wait,
            before_sleep=lambda _: self._observer.retried(verb, request.plural),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                response = await self.open(request, self._timeout)
                return await read_object(str(request), response)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def open(self, request: Request, timeout_seconds: float) -> aiohttp.ClientResponse:
        """The response as soon as its headers are there, once, without retries.

        Raises Transient when there is none.
        """
        path, method, body = request.path, request.method, request.body
        headers = {"Accept": JSON, "Content-Type": request.content_type}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._api.configuration.host.rstrip("/") + path
        if request.query:
            url += "?" + urlencode(request.query)
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=self._timeout)
        try:
            answer = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._observer.answered(request.verb, request.plural, 0)
            raise Transient(str(request), _say(error)) from error
        response: aiohttp.ClientResponse = answer.response
        self._observer.answered(request.verb, request.plural, response.status)
        return response


async def read_object(attempted: str, response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The JSON object of a response. Raises ApiError for an error status or something else."""
    try:
        text = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Transient(attempted, _say(error)) from error
    finally:
        response.release()
    return _parse(attempted, response.status, text, response.headers)


def _parse(attempted: str, code: int, text: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        parsed = json.loads(text) if text else {}
    except ValueError as error:
        if code < 400:
            raise Transient(attempted, f"an answer that is cut off, or no JSON: {error}") from error
        parsed = {"message": text[:500].decode(errors="replace")}
    if code >= 400 or not isinstance(parsed, dict):
        status = parsed if isinstance(parsed, dict) else {}
        raise from_response(attempted, code, status, _retry_after(headers))
    return parsed


def plural_of(path: str) -> str:
    """The plural in a URL path, such as ``pods``: few enough to label a metric with."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[0] == "namespaces" and len(rest) > 2:
        return rest[2]
    return rest[0]


def describe(verb: str, path: str) -> str:
    """A request in words, such as ``create pods in namespace team-a``."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (f".{parts[1]}", parts[3:])
    where = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        where, rest = f" in namespace {rest[1]}", rest[2:]
    subresource = f", {rest[2]}" if len(rest) > 2 else ""
    name = f" {rest[1]}" if len(rest) > 1 else ""
    return f"{verb} {rest[0]}{group}{name}{where}{subresource}"


def _wait(state: RetryCallState) -> float:
    """What the server asks for, else doubling from a fifth of a second, spread by a quarter."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ApiError) else None
    wait = asked if asked is not None else FIRST_WAIT * 2.0 ** (state.attempt_number - 1)
    return min(wait, LONGEST_WAIT) * random.uniform(1.0, 1.25)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _say(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"
