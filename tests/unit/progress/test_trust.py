"""The CAs that pods trust: kept, renewed in time, and never replaced without an overlap."""

import base64
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from goodput_operator.kube.paths import Resource
from goodput_operator.progress.certificates import CA_DAYS, CertificateError
from goodput_operator.progress.server import ProgressConfig, ProgressServer
from goodput_operator.progress.trust import (
    ROTATE_BEFORE,
    SECRET_NAME,
    Trust,
    load_trust,
    renewed,
    secret_body,
)
from tests.unit.progress.fakes import KEY, FakeClient, FakeStore, job, pod

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)
NAMESPACE = "goodput-system"
SECRET = (NAMESPACE, SECRET_NAME)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def new_trust() -> Trust:
    return renewed(None, None, NOW)


def without_current(client: FakeClient) -> None:
    """What an administrator does to rotate the CA now."""
    secret = client.secrets[SECRET]
    data = {k: v for k, v in secret["data"].items() if k not in ("ca.crt", "ca.key")}
    client.secrets[SECRET] = client._versioned({**secret, "data": data})


async def test_restart_keeps_the_cas(client: FakeClient) -> None:
    first = await load_trust(client, NAMESPACE, NOW)
    assert (await load_trust(client, NAMESPACE, NOW)).pem == first.pem


async def test_of_two_replicas_the_first_ones_cas_count() -> None:
    class Raced(FakeClient):
        async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
            if SECRET not in self.secrets:
                await super().create(resource, secret_body(winner, NAMESPACE))
            return await super().create(resource, body)

    winner = new_trust()
    assert (await load_trust(Raced(), NAMESPACE, NOW)).pem == winner.pem


async def test_of_two_replicas_that_rotate_at_once_the_first_one_counts() -> None:
    class Raced(FakeClient):
        raced = False

        async def patch(
            self, resource: Resource, namespace: str | None, name: str, body: Mapping[str, Any]
        ) -> dict[str, Any]:
            if not self.raced:
                self.raced = True
                winners.append(await load_trust(self, NAMESPACE, later))
            return await super().patch(resource, namespace, name, body)

    winners: list[Trust] = []
    later = NOW + timedelta(days=CA_DAYS)
    client = Raced()
    await load_trust(client, NAMESPACE, NOW)
    assert (await load_trust(client, NAMESPACE, later)).pem == winners[0].pem


async def test_over_forty_years_pods_of_the_last_nine_always_trust_the_server(
    client: FakeClient,
) -> None:
    """Every half a year: the CA that signs is valid, and old pods were told of it."""
    told: list[tuple[datetime, str]] = []
    signers = set()
    for half_years in range(80):
        now = NOW + half_years * YEAR / 2
        trust = await load_trust(client, NAMESPACE, now)
        assert trust.current.expires_at > now + ROTATE_BEFORE
        told.append((now, trust.pem))
        signers.add(trust.current.pem)
        for when, pem in told:
            if now - when <= 9 * YEAR:
                assert trust.current.pem in pem
    assert len(signers) == 5


async def test_a_secret_of_the_version_before_gets_a_successor(client: FakeClient) -> None:
    body = secret_body(new_trust(), NAMESPACE)
    old = {name: value for name, value in body["data"].items() if name.startswith("ca.")}
    client.secrets[SECRET] = client._versioned({**body, "data": old})
    trust = await load_trust(client, NAMESPACE, NOW)
    assert client.secrets[SECRET]["data"]["ca.crt"] == old["ca.crt"]
    assert (
        base64.b64encode(trust.successor.pem.encode()).decode()
        == (client.secrets[SECRET]["data"]["next-ca.crt"])
    )


async def test_a_deleted_secret_is_put_back_by_whoever_knows_it(client: FakeClient) -> None:
    trust = await load_trust(client, NAMESPACE, NOW)
    client.secrets.clear()
    assert (await load_trust(client, NAMESPACE, NOW, trust)).pem == trust.pem
    assert (await load_trust(client, NAMESPACE, NOW)).pem == trust.pem


@pytest.mark.parametrize(
    "data",
    [None, {}, {"ca.crt": "!", "ca.key": "!"}, {"ca.crt": "eA==", "ca.key": "eA=="}, "swapped"],
)
async def test_secret_that_holds_no_ca_is_named_with_the_remedy(
    client: FakeClient, data: object
) -> None:
    body = secret_body(new_trust(), NAMESPACE)
    if data == "swapped":
        data = body["data"] | {"ca.key": secret_body(new_trust(), NAMESPACE)["data"]["ca.key"]}
    client.secrets[SECRET] = client._versioned(body | {"data": data})
    with pytest.raises(CertificateError, match=f"delete Secret {NAMESPACE}/"):
        await load_trust(client, NAMESPACE, NOW)


class Endpoint:
    """A listening endpoint, and clients that trust what they were told when they were created."""

    def __init__(self, client: FakeClient) -> None:
        self.client, self.told = client, []
        self.told: list[str] = []
        self.rank = pod("chief", 0)
        config = ProgressConfig("127.0.0.1:8443", NAMESPACE, "127.0.0.1", 0)
        store = FakeStore(job(), self.rank)
        self.server = ProgressServer(config, store, client, on_trust=self.told.append)

    async def post(self, pem: str) -> int:
        path = f"v1/namespaces/{KEY.namespace}/trainingjobs/{KEY.name}/progress"
        headers = {"Authorization": f"Bearer {self.client.admit(self.rank)}"}
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=pem))
        body = {"attempt": 1, "role": "chief", "rank": 0, "step": 7}
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.post(f"https://127.0.0.1:{self.server.port}/{path}", json=body) as response,
        ):
            return response.status


async def test_a_rotation_is_not_noticed_by_pods_that_run(client: FakeClient) -> None:
    endpoint = Endpoint(client)
    await endpoint.server.start()
    try:
        without_current(client)
        await endpoint.server.look_after_certificates(NOW)
        before, after = endpoint.told
        assert before != after
        assert (
            x509.load_pem_x509_certificates(before.encode())[1]
            == (x509.load_pem_x509_certificates(after.encode())[0])
        )
        assert [await endpoint.post(before), await endpoint.post(after)] == [200, 200]
        # One that was there before the last two rotations is cut off: so it is the new CA's.
        without_current(client)
        await endpoint.server.look_after_certificates(NOW)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await endpoint.post(before)
        assert await endpoint.post(after) == 200
    finally:
        await endpoint.server.stop()


async def test_a_secret_that_was_spoilt_changes_nothing_for_a_running_endpoint(
    client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(client)
    await endpoint.server.start()
    try:
        client.secrets[SECRET] = client._versioned(client.secrets[SECRET] | {"data": {}})
        with pytest.raises(CertificateError):
            await endpoint.server.look_after_certificates(NOW)
        assert await endpoint.post(endpoint.told[0]) == 200
        client.secrets[SECRET] = client._versioned(secret_body(new_trust(), NAMESPACE))
        await endpoint.server.look_after_certificates(NOW)
        assert "pods that run can no longer report" in caplog.text
        assert await endpoint.post(endpoint.told[1]) == 200
    finally:
        await endpoint.server.stop()
