from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from goodput_operator.kube import transport as transport_module
from goodput_operator.kube.client import Client
from goodput_operator.kube.transport import Transport
from tests.unit.kube.server import Server


class Observed:
    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.retries: Counter[tuple[str, str]] = Counter()

    def answered(self, verb: str, resource: str, code: int) -> None:
        self.answers[verb, resource, code] += 1

    def retried(self, verb: str, resource: str) -> None:
        self.retries[verb, resource] += 1


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def client(
    server: Server, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    monkeypatch.setattr(transport_module, "FIRST_WAIT", 0.001)
    configuration = Configuration(host=server.url, api_key={"BearerToken": "Bearer secret"})
    client = Client(Transport(ApiClient(configuration), observed, timeout_seconds=0.5))
    yield client
    await client.close()
