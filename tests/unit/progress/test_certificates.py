"""The CA that pods trust."""

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from goodput_operator.kube.paths import Resource
from goodput_operator.progress import certificates
from goodput_operator.progress.certificates import CertificateError, issue, load_authority
from tests.unit.progress.fakes import FakeClient

NOW = datetime(2027, 1, 15, tzinfo=UTC)
NAMESPACE = "goodput-system"
SECRET = (NAMESPACE, certificates.SECRET_NAME)


async def test_restart_keeps_the_ca() -> None:
    client = FakeClient()
    first = await load_authority(client, NAMESPACE, NOW)
    assert (await load_authority(client, NAMESPACE, NOW)).pem == first.pem


async def test_of_two_replicas_the_first_ones_ca_counts() -> None:
    class Raced(FakeClient):
        async def create(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
            await super().create(resource, certificates.secret_body(winner, NAMESPACE))
            return await super().create(resource, body)

    winner = certificates.new_authority(NOW)
    assert (await load_authority(Raced(), NAMESPACE, NOW)).pem == winner.pem


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("goodput-operator-progress.goodput-system.svc:8443", None),
        ("10.0.0.7:8443", "10.0.0.7"),
        ("[fd00::7]:8443", "fd00::7"),
    ],
)
def test_certificate_names_the_advertised_host(address: str, name: str | None) -> None:
    authority = certificates.new_authority(NOW)
    server = x509.load_pem_x509_certificate(issue(authority, address, NOW).certificate_pem)
    server.verify_directly_issued_by(authority.certificate)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if name is None:
        assert names.get_values_for_type(x509.DNSName) == [address.rpartition(":")[0]]
    else:
        assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(name)]


@pytest.mark.parametrize("address", ["", "host", ":8443", "host:", "host:https"])
def test_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        certificates.host_of(address)


def test_server_certificate_is_replaced_before_it_expires() -> None:
    server = issue(certificates.new_authority(NOW), "host:1", NOW)
    assert not server.is_stale(NOW + timedelta(days=certificates.SERVER_DAYS - 31))
    assert server.is_stale(NOW + timedelta(days=certificates.SERVER_DAYS - 29))


@pytest.mark.parametrize(
    "data",
    [None, {}, {"ca.crt": "!", "ca.key": "!"}, {"ca.crt": "eA==", "ca.key": "eA=="}, "swapped"],
)
async def test_secret_that_holds_no_ca_is_named_with_the_remedy(data: object) -> None:
    client = FakeClient()
    body = certificates.secret_body(certificates.new_authority(NOW), NAMESPACE)
    if data == "swapped":
        other = certificates.secret_body(certificates.new_authority(NOW), NAMESPACE)
        data = body["data"] | {"ca.key": other["data"]["ca.key"]}
    client.secrets[SECRET] = body | {"data": data}
    with pytest.raises(CertificateError, match=f"delete Secret {NAMESPACE}/"):
        await load_authority(client, NAMESPACE, NOW)


async def test_ca_about_to_expire_is_named_with_the_remedy() -> None:
    client = FakeClient()
    await load_authority(client, NAMESPACE, NOW)
    later = NOW + timedelta(days=certificates.CA_DAYS - 10)
    with pytest.raises(CertificateError, match="expires"):
        await load_authority(client, NAMESPACE, later)
