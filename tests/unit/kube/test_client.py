"""The verbs against a real HTTP server: bodies, retries, pages, watches."""

import asyncio
import base64
import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from goodput_operator import constants as c
from goodput_operator.kube import client as client_module
from goodput_operator.kube.client import Client, connect
from goodput_operator.kube.errors import (
    Conflict,
    CredentialsError,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Transient,
    WebhookFailed,
)
from goodput_operator.kube.paths import NODES, PODS, TRAINING_JOBS
from goodput_operator.progress.certificates import new_authority
from tests.unit.kube.conftest import Observed
from tests.unit.kube.server import Server, status

POD = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"unknownField": {"kept": True}}}


def listed(*names: str, version: str = "7", token: str = "") -> web.Response:
    items = [{"metadata": {"name": name}} for name in names]
    metadata = {"resourceVersion": version, "continue": token}
    return web.json_response({"items": items, "metadata": metadata})


# One request


async def test_objects_go_in_and_come_out_as_they_are(client: Client, server: Server) -> None:
    server.answers = [web.json_response(POD, status=201)]
    assert await client.create(PODS, POD) == POD
    method, path, _, body, headers = server.requests[0]
    assert (method, path, body) == ("POST", "/api/v1/namespaces/n/pods", POD)
    assert headers["Authorization"] == "Bearer secret"


async def test_status_is_applied_by_its_own_manager(client: Client, server: Server) -> None:
    server.answers = [web.json_response(POD)]
    await client.apply_status(TRAINING_JOBS, POD, c.FIELD_MANAGER)
    method, path, query, body, headers = server.requests[0]
    assert (method, body) == ("PATCH", POD)
    assert path == "/apis/goodput.dev/v1alpha1/namespaces/n/trainingjobs/a/status"
    assert query == {"fieldManager": "goodput-operator", "force": "true"}
    assert headers["Content-Type"] == "application/apply-patch+yaml"


async def test_a_delete_names_uid_and_grace(client: Client, server: Server) -> None:
    server.answers = [web.json_response({"kind": "Status"})]
    await client.delete(PODS, "n", "a", uid="u", grace_seconds=0)
    _, _, _, body, _ = server.requests[0]
    assert body["preconditions"] == {"uid": "u"}
    assert body["gracePeriodSeconds"] == 0


async def test_a_token_review_answers_its_status(client: Client, server: Server) -> None:
    server.answers = [web.json_response({"status": {"authenticated": True}}, status=201)]
    assert await client.token_review("token", ["goodput.dev/progress"]) == {"authenticated": True}


# Retries


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again(
    client: Client, server: Server, observed: Observed, code: int
) -> None:
    server.answers = [status(code, ""), status(code, ""), web.json_response(POD)]
    assert await client.get(PODS, "n", "a") == POD
    assert observed.answers == {("get", "pods", code): 2, ("get", "pods", 200): 1}
    assert observed.retries == {("get", "pods"): 2}


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [(403, "", Forbidden), (404, "NotFound", NotFound), (409, "", Conflict), (422, "", Invalid)],
)
async def test_what_will_not_pass_is_not_tried_again(
    client: Client, server: Server, code: int, reason: str, error: type[Exception]
) -> None:
    server.answers = [status(code, reason, "because")]
    with pytest.raises(error, match="create pods in namespace n"):
        await client.create(PODS, POD)
    assert len(server.requests) == 1


async def test_a_webhook_that_fails_is_left_to_the_work_queue(
    client: Client, server: Server
) -> None:
    """It may take its 30 s each time, and hold up all other jobs."""
    server.answers = [status(500, "InternalError", 'failed calling webhook "mpod.kb.io": timeout')]
    with pytest.raises(WebhookFailed, match="mpod"):
        await client.create(PODS, POD)
    assert len(server.requests) == 1


async def test_retries_end(client: Client, server: Server) -> None:
    server.answers = [status(503, "ServiceUnavailable", "overloaded")]
    with pytest.raises(Transient, match="get pods a in namespace n: overloaded"):
        await client.get(PODS, "n", "a")
    assert len(server.requests) == 4


async def test_the_server_says_when_to_come_back(client: Client, server: Server) -> None:
    server.answers = [status(429, "", Retry_After="0.2"), web.json_response(POD)]
    began = time.monotonic()
    await client.get(PODS, "n", "a")
    assert time.monotonic() - began >= 0.2


async def test_a_server_that_does_not_answer_is_given_up_on(
    client: Client, server: Server, observed: Observed
) -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    server.answers = [hang]
    with pytest.raises(Transient, match="no answer in time"):
        await client.get(PODS, "n", "a")
    assert observed.answers["get", "pods", 0] == 4


async def test_a_server_that_is_not_there_is_transient(client: Client, server: Server) -> None:
    client._transport._api.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(Transient, match="get pods"):
        await client.get(PODS, "n", "a")


async def test_an_answer_that_is_no_json_is_an_error(client: Client, server: Server) -> None:
    server.answers = [web.Response(status=403, text="<html>proxy says no</html>")]
    with pytest.raises(Forbidden, match="proxy says no"):
        await client.get(PODS, "n", "a")


# Lists


async def test_a_list_is_read_page_by_page(client: Client, server: Server) -> None:
    server.answers = [listed("a", "b", token="next"), listed("c", version="9")]
    items, version = await client.list_all(NODES, selector="x")
    assert [item["metadata"]["name"] for item in items] == ["a", "b", "c"]
    assert version == "9"
    queries = [query for _, _, query, _, _ in server.requests]
    assert queries[0] == {"limit": "500", "labelSelector": "x"}
    assert queries[1] == {"limit": "500", "labelSelector": "x", "continue": "next"}


async def test_a_list_that_was_forgotten_midway_starts_over(client: Client, server: Server) -> None:
    server.answers = [
        listed("a", "gone", token="next"),
        status(410, "Expired"),
        listed("a", version="12"),
    ]
    items, version = await client.list_all(NODES)
    assert [item["metadata"]["name"] for item in items] == ["a"]
    assert version == "12"


@pytest.mark.parametrize("body", [b'{"items": [{"metada', b"<html>", b'{"kind": "Status"}', b""])
async def test_a_list_that_is_cut_off_is_not_believed(
    client: Client, server: Server, body: bytes
) -> None:
    server.answers = [web.Response(body=body)]
    with pytest.raises(Transient, match="list nodes: an answer that is"):
        await client.list_all(NODES)


async def test_an_answer_that_is_cut_off_once_is_asked_for_again(
    client: Client, server: Server
) -> None:
    server.answers = [web.Response(body=b'{"items": [{"me'), listed("a", "b")]
    items, _ = await client.list_all(NODES)
    assert len(items) == 2


# Watches


def event(kind: str, version: int, **fields: object) -> bytes:
    item = {"metadata": {"name": "a", "resourceVersion": str(version)}, **fields}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def stream(*chunks: bytes, hold: float = 0.0) -> object:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.005)
        await asyncio.sleep(hold)
        return response

    return answer


async def seen(client: Client) -> list[tuple[str, str]]:
    return [
        (kind, item["metadata"]["resourceVersion"])
        async for kind, item in client.watch(PODS, "5", "!x")
    ]


async def test_a_watch_yields_events_and_bookmarks_until_it_is_closed(
    client: Client, server: Server
) -> None:
    big = event("MODIFIED", 7, spec={"padding": "x" * 400_000})
    whole = event("ADDED", 6) + big + event("BOOKMARK", 9)
    # Chunks don't respect lines.
    server.answers = [stream(whole[:10], whole[10:5000], whole[5000:])]  # type: ignore[list-item]
    assert await seen(client) == [("ADDED", "6"), ("MODIFIED", "7"), ("BOOKMARK", "9")]
    _, _, query, _, _ = server.requests[0]
    assert query["resourceVersion"] == "5"
    assert query["allowWatchBookmarks"] == "true"
    assert query["labelSelector"] == "!x"


async def test_a_watch_from_too_old_a_version_is_expired(client: Client, server: Server) -> None:
    server.answers = [status(410, "Expired", "too old resource version")]
    with pytest.raises(Expired):
        await seen(client)


async def test_a_watch_that_becomes_too_old_midway_is_expired(
    client: Client, server: Server
) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    error = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
    server.answers = [stream(event("ADDED", 6), error)]  # type: ignore[list-item]
    with pytest.raises(Expired):
        await seen(client)


@pytest.mark.parametrize("code", [429, 500, 504])
async def test_any_error_within_a_watch_has_all_listed_anew(
    client: Client, server: Server, code: int
) -> None:
    failure = {"kind": "Status", "code": code, "message": "etcdserver: leader changed"}
    error = json.dumps({"type": "ERROR", "object": failure}).encode() + b"\n"
    server.answers = [stream(event("ADDED", 6), error)]  # type: ignore[list-item]
    with pytest.raises(Expired, match="leader changed"):
        await seen(client)


@pytest.mark.parametrize(
    "line",
    [b'{"type": "ADDED", "obj\n', b"<html>\n", b"[1]\n", b'{"type": "ADDED", "object": {}}\n'],
)
async def test_what_is_no_event_ends_a_watch_and_not_the_process(
    client: Client, server: Server, line: bytes
) -> None:
    server.answers = [stream(event("ADDED", 6), line)]  # type: ignore[list-item]
    with pytest.raises(Transient, match="no event"):
        await seen(client)


async def test_half_a_line_at_the_end_of_a_watch_is_dropped(client: Client, server: Server) -> None:
    half = event("ADDED", 7)[:20]
    server.answers = [stream(event("ADDED", 6), half)]  # type: ignore[list-item]
    assert await seen(client) == [("ADDED", "6")]


async def test_a_silent_watch_is_given_up_on(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "QUIET_SECONDS", 0.1)
    server.answers = [stream(event("ADDED", 6), hold=5)]  # type: ignore[list-item]
    with pytest.raises(Transient, match="watch pods"):
        await seen(client)


# Credentials


async def test_without_credentials_the_error_names_the_remedy(
    observed: Observed, tmp_path: Path
) -> None:
    with pytest.raises(CredentialsError, match=r"nowhere.*GOODPUT_KUBECONFIG"):
        await connect(str(tmp_path / "nowhere"), observed, 1.0)


async def test_a_kubeconfig_with_certificates_in_it_leaves_no_files_behind(
    observed: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the process is killed right after: nothing is left to the end."""
    now = datetime.now(UTC)
    pem = new_authority(now, now + timedelta(days=1)).pem.encode()
    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(pem).decode(),
    }
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "c", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    client = await connect(str(file), observed, 1.0)
    assert list(temporary.iterdir()) == []
    context = client._transport._api.rest_client.ssl_context
    assert len(context.get_ca_certs()) == 1, "the authority is in memory"
    access = await client.access(lambda plural: None)
    await access.session.close()
    await client.close()
