"""One HTTP request to the API server: authentication, time-outs, errors, retries."""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from goodput_operator.kube.errors import ApiError, Transient, from_response

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
"""Seconds. What takes longer goes back to the work queue, so that other jobs are not held up."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Observer(Protocol):
    """Counts what happens to requests."""

    def answered(self, verb: str, code: int) -> None:
        """A request got this HTTP status code."""

    def failed(self, kind: str) -> None:
        """A request ended in an error of this kind."""

    def retried(self) -> None:
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
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Transient),
            stop=stop_after_attempt(ATTEMPTS),
            wait=_wait,
            before_sleep=lambda _: self._observer.retried(),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await self._once(verb, method, path, query, body, content_type)
        except ApiError as error:
            self._observer.failed(error.kind)
            raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        content_type: str,
    ) -> dict[str, Any]:
        response = await self.open(verb, method, path, query, body, content_type, self._timeout)
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(f"{verb} {path}", _say(error)) from error
        finally:
            response.release()
        return parse_object(f"{verb} {path}", response.status, text, response.headers)

    async def open(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout_seconds: float,
    ) -> aiohttp.ClientResponse:
        """The response as soon as its headers are there, once, without retries.

        Raises Transient when there is none.
        """
        headers = {"Accept": JSON, "Content-Type": content_type}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._api.configuration.host.rstrip("/") + path
        if query:
            url += "?" + urlencode(query)
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=self._timeout)
        try:
            answer = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(f"{verb} {path}", _say(error)) from error
        response: aiohttp.ClientResponse = answer.response
        self._observer.answered(verb, response.status)
        return response


def parse_object(
    attempted: str, code: int, text: bytes, headers: Mapping[str, str]
) -> dict[str, Any]:
    """The JSON object of a response. Raises ApiError for an error status or something else."""
    try:
        parsed = json.loads(text) if text else {}
    except ValueError:
        parsed = {"message": text[:500].decode(errors="replace")}
    if code >= 400 or not isinstance(parsed, dict):
        status = parsed if isinstance(parsed, dict) else {}
        raise from_response(attempted, code, status, _retry_after(headers))
    return parsed


def _wait(state: RetryCallState) -> float:
    """What the server asks for, else doubling from a fifth of a second."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ApiError) else None
    wait = asked if asked is not None else FIRST_WAIT * 2.0 ** (state.attempt_number - 1)
    return min(wait, LONGEST_WAIT)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _say(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"
