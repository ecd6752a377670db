"""The CA that pods trust, and the server certificate that it signs.

The CA lives in a Secret of the operator's namespace: pods carry its certificate from the day they
are created, so a restarted operator, or its other replica, must sign with the same key. The server
certificate is made anew at each start and before it expires; it exists in memory only.
"""

import asyncio
import base64
import binascii
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from goodput_operator.kube.errors import AlreadyExists, NotFound
from goodput_operator.kube.paths import SECRETS
from goodput_operator.progress.ports import ProgressClient

SECRET_NAME = "goodput-operator-progress-tls"
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
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


def new_authority(now: datetime) -> Authority:
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
        .not_valid_after(now + timedelta(days=CA_DAYS))
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
    expires_at = min(now + timedelta(days=SERVER_DAYS), authority.certificate.not_valid_after_utc)
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
        certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key), expires_at
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


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


async def load_authority(
    client: ProgressClient, namespace: str, now: datetime | None = None
) -> Authority:
    """The CA out of its Secret, which is created if there is none.

    When two replicas create it at once, both take the one that was first. Raises ApiError, and
    CertificateError when what the Secret holds is no CA of ours, or is about to expire.
    """
    now = now or datetime.now(UTC)
    try:
        secret = await client.get(SECRETS, namespace, SECRET_NAME)
    except NotFound:
        try:
            secret = await client.create(SECRETS, secret_body(new_authority(now), namespace))
        except AlreadyExists:
            secret = await client.get(SECRETS, namespace, SECRET_NAME)
    return read_authority(secret, f"Secret {namespace}/{SECRET_NAME}", now)


def secret_body(authority: Authority, namespace: str) -> dict[str, Any]:
    """The Secret that keeps a CA."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET_NAME,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "goodput-operator"},
        },
        "type": "Opaque",
        "data": {
            CA_CERTIFICATE: base64.b64encode(authority.pem.encode()).decode(),
            CA_KEY: base64.b64encode(_key_pem(authority.key)).decode(),
        },
    }


def read_authority(secret: Mapping[str, Any], source: str, now: datetime) -> Authority:
    """The CA that a Secret holds. Raises CertificateError."""
    remedy = f"delete {source} and restart the operator; a new one is made, for new pods"
    data = secret.get("data") or {}
    try:
        pems = [base64.b64decode(data[field], validate=True) for field in (CA_CERTIFICATE, CA_KEY)]
        certificate = x509.load_pem_x509_certificate(pems[0])
        key = serialization.load_pem_private_key(pems[1], password=None)
        certificate.verify_directly_issued_by(certificate)
    except (KeyError, TypeError, ValueError, binascii.Error, InvalidSignature) as error:
        raise CertificateError(f"{source} holds no CA ({error!r}); {remedy}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{source}: {CA_KEY} is no elliptic-curve key; {remedy}")
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"{source}: {CA_KEY} does not belong to {CA_CERTIFICATE}; {remedy}")
    if certificate.not_valid_after_utc - RENEW_BEFORE <= now:
        raise CertificateError(
            f"{source}: the CA expires at {certificate.not_valid_after_utc}; {remedy}"
        )
    return Authority(certificate, key)


def load_into(context: ssl.SSLContext, server: ServerCertificate) -> None:
    """Serve new handshakes with this certificate. The key is on disk while it is read only."""
    with tempfile.TemporaryDirectory(prefix="goodput-progress-") as folder:
        path = Path(folder) / "server.pem"
        # The directory is ours alone already; the mode says so of the file too.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(server.key_pem + server.certificate_pem)
        context.load_cert_chain(path)


async def keep_fresh(
    context: ssl.SSLContext, authority: Authority, address: str, server: ServerCertificate
) -> None:
    """Replace the server certificate before it expires, until cancelled."""
    while True:
        await asyncio.sleep(3600)
        if server.is_stale(now := datetime.now(UTC)):
            server = issue(authority, address, now)
            await asyncio.to_thread(load_into, context, server)
