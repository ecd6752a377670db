"""The API server as an administrator, without a process for each look: a kubectl costs 80 ms."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import queue
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from goodput_sandbox.sandbox import Sandbox

Object = dict[str, Any]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
CORE = "/api/v1"
NAMESPACED = {
    "pods": CORE,
    "events": CORE,
    "services": CORE,
    "trainingjobs": "/apis/goodput.dev/v1alpha1",
    "workloads": KUEUE,
}
CLUSTER = {"nodes": CORE, "clusterqueues": KUEUE}
ANSWER_SECONDS = 90.0
WATCH_SECONDS = 3600


class Api:
    """Reads and writes objects over connections that are kept for the next request."""

    def __init__(self, server: str, pki: Path) -> None:
        self._address = urlsplit(server)
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._kept: queue.SimpleQueue[http.client.HTTPSConnection] = queue.SimpleQueue()

    def request(self, method: str, path: str, body: Object | None = None) -> Object | None:
        """What the server answers, None for 404. AssertionError when it refuses."""
        status, text = self._ask(method, path, body)
        if status == http.client.NOT_FOUND:
            return None
        assert status < http.client.BAD_REQUEST, f"{method} {path}: {text.decode()}"
        parsed: Object = json.loads(text)
        return parsed

    def text(self, path: str) -> str:
        """What is at a path that has no objects, such as ``/metrics``."""
        return self._ask("GET", path, None)[1].decode()

    def _ask(self, method: str, path: str, body: Object | None) -> tuple[int, bytes]:
        try:
            connection = self._kept.get_nowait()
        except queue.Empty:
            connection = self.connect(ANSWER_SECONDS)
        try:
            answer = _send(connection, method, path, body)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise
            # The server closes what has been idle, or has been started anew.
            connection = self.connect(ANSWER_SECONDS)
            answer = _send(connection, method, path, body)
        self._kept.put(connection)
        return answer

    def connect(self, timeout: float) -> http.client.HTTPSConnection:
        """A new connection, opened with the first request."""
        return http.client.HTTPSConnection(
            str(self._address.hostname), self._address.port, timeout=timeout, context=self._context
        )

    def close(self) -> None:
        """End all that is idle."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._kept.get_nowait().close()


class Watch:
    """Types and objects of all that happens, what is there first; ends when it is closed.

    Raises OSError or HTTPException when it cannot begin, or breaks.
    """

    def __init__(self, api: Api, path: str) -> None:
        self._connection = api.connect(WATCH_SECONDS)
        query = urlencode({"watch": "true", "timeoutSeconds": WATCH_SECONDS})
        self._connection.request("GET", f"{path}?{query}")

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        with contextlib.closing(self._connection), self._connection.getresponse() as answer:
            if answer.status != http.client.OK:
                raise ConnectionError(answer.read().decode())
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]

    def close(self) -> None:
        """Let whoever reads come to the end."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)


def _send(
    connection: http.client.HTTPSConnection, method: str, path: str, body: Object | None
) -> tuple[int, bytes]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    text = None if body is None else json.dumps(body)
    connection.request(method, path, body=text, headers={"Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, answer.read()


def path_of(kind: str, namespace: str | None, name: str = "") -> str | None:
    """The path of objects of a kind, or of one of them; None for a kind not known here."""
    plural = kind.partition(".")[0]
    if plural in NAMESPACED:
        where = f"/namespaces/{namespace}" if namespace else ""
        path = f"{NAMESPACED[plural]}{where}/{plural}"
    elif plural in CLUSTER:
        path = f"{CLUSTER[plural]}/{plural}"
    else:
        return None
    return f"{path}/{name}" if name else path


def api_of(sandbox: Sandbox) -> Api:
    """The API server of a sandbox."""
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    return _made(config["clusters"][0]["cluster"]["server"], sandbox.pki_dir)


@functools.cache
def _made(server: str, pki: Path) -> Api:
    return Api(server, pki)
