"""One HTTP request to the API server: authentication, time-outs, errors, retries."""

import asyncio
import json
import logging
import random
from collections.abc import Mapping
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
class Access:
    """How this client reaches the API server, for others who want to reach it likewise."""

    server: str
    ca_path: str | None
    certificate_path: str | None
    key_path: str | None
    authorization: str | None
    """Value of the header, ``Bearer …``."""
    verify: bool


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

    async def access(self) -> Access:
        """What it uses to connect; a token that is read from a file is read anew when old."""
        used = self._api.configuration
        authorization = await used.get_api_key_with_prefix("BearerToken", alias="authorization")
        return Access(
            server=used.host,
            ca_path=used.ssl_ca_cert,
            certificate_path=used.cert_file,
            key_path=used.key_file,
            authorization=authorization,
            verify=used.verify_ssl,
        )

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
            stop=stop_after_attempt(ATTEMPTS) | stop_after_delay(PATIENCE_SECONDS),
            wait=_wait,
            before_sleep=lambda _: self._observer.retried(verb, plural_of(path)),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await self._once(verb, method, path, query, body, content_type)
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
            raise Transient(describe(verb, path), _say(error)) from error
        finally:
            response.release()
        return parse_object(describe(verb, path), response.status, text, response.headers)

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
            self._observer.answered(verb, plural_of(path), 0)
            raise Transient(describe(verb, path), _say(error)) from error
        response: aiohttp.ClientResponse = answer.response
        self._observer.answered(verb, plural_of(path), response.status)
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
