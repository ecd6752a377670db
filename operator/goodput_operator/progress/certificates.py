"""Certificates: CAs, and what they sign for the server.

The server's certificate is made anew at each start, when its CA is replaced, and before it expires;
it exists in memory only.
"""

import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SERVER_DAYS = 90
RENEW_BEFORE = timedelta(days=30)
_CLOCK_SKEW = timedelta(hours=1)


class CertificateError(Exception):
    """The Secret holds no usable CA; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """Its certificate, as pods are given it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def expires_at(self) -> datetime:
        """When it ends."""
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A server's certificate and key, in PEM."""

    certificate_pem: bytes
    key_pem: bytes
    expires_at: datetime

    def is_stale(self, now: datetime) -> bool:
        """Time for a new one."""
        return now >= self.expires_at - RENEW_BEFORE


def host_of(address: str) -> str:
    """The host of ``host:port``, where an IPv6 address is in brackets.

    Raises ValueError when it is not of this form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"progress address {address!r}: write it as host:port")
    return host.removeprefix("[").removesuffix("]")


def new_authority(now: datetime, expires_at: datetime) -> Authority:
    """A CA with a new EC P-256 key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "goodput-operator progress CA")])
    usage = _key_usage(digital_signature=False, key_cert_sign=True, crl_sign=True)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(expires_at)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue(authority: Authority, address: str, now: datetime) -> ServerCertificate:
    """A server certificate for the host of an advertised ``host:port``."""
    host = host_of(address)
    key = ec.generate_private_key(ec.SECP256R1())
    expires_at = min(now + timedelta(days=SERVER_DAYS), authority.expires_at)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    usage = _key_usage(digital_signature=True, key_cert_sign=False, crl_sign=False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "goodput-operator progress")])
        )
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(expires_at)
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return ServerCertificate(
        certificate.public_bytes(serialization.Encoding.PEM), key_pem(key), expires_at
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, digital_signature: bool, key_cert_sign: bool, crl_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in PEM, as the Secret and the server take it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_into(context: ssl.SSLContext, server: ServerCertificate) -> None:
    """Serve new handshakes with this certificate. The key is on disk while it is read only."""
    with tempfile.TemporaryDirectory(prefix="goodput-progress-") as folder:
        path = Path(folder) / "server.pem"
        # The directory is ours alone already; the mode says so of the file too.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(server.key_pem + server.certificate_pem)
        context.load_cert_chain(path)
