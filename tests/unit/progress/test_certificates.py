"""What the CAs sign for the server."""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from goodput_operator.progress import certificates
from goodput_operator.progress.certificates import issue, new_authority

NOW = datetime(2027, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("goodput-operator-progress.goodput-system.svc:8443", None),
        ("10.0.0.7:8443", "10.0.0.7"),
        ("[fd00::7]:8443", "fd00::7"),
    ],
)
def test_certificate_names_the_advertised_host(address: str, name: str | None) -> None:
    authority = new_authority(NOW, NOW + timedelta(days=3650))
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
    server = issue(new_authority(NOW, NOW + timedelta(days=3650)), "host:1", NOW)
    assert not server.is_stale(NOW + timedelta(days=certificates.SERVER_DAYS - 31))
    assert server.is_stale(NOW + timedelta(days=certificates.SERVER_DAYS - 29))
