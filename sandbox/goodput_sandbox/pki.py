"""Certificates signed by the cluster's own authority."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=365)


def create(pki_dir: Path, addresses: tuple[str, ...]) -> None:
    """Make the authority, and the administrator's pair with which kwokctl runs everything.

    kwokctl would make them itself, but with serial number 0, which libraries refuse.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
    )
    _write(builder.sign(key, hashes.SHA256()), key, pki_dir / "ca.crt", pki_dir / "ca.key")
    issue(
        pki_dir,
        pki_dir / "admin.crt",
        pki_dir / "admin.key",
        "sandbox-admin",
        organizations=("system:masters",),
        addresses=addresses,
        names=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    )


def issue(
    pki_dir: Path,
    cert: Path,
    key: Path,
    common_name: str,
    *,
    organizations: tuple[str, ...] = (),
    addresses: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
) -> None:
    """Issue a certificate for clients and servers, and its key, as PEM files.

    `common_name` is the user and `organizations` the groups that the API server sees.
    """
    authority = x509.load_pem_x509_certificate((pki_dir / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((pki_dir / "ca.key").read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError(f"unexpected kind of key in {pki_dir / 'ca.key'}")
    own = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    builder = _builder(x509.Name(subject), authority.subject, own.public_key())
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    alternatives: list[x509.GeneralName] = [x509.DNSName(n) for n in names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    _write(builder.sign(signer, hashes.SHA256()), own, cert, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
    )


def _write(
    certificate: x509.Certificate, private: ec.EllipticCurvePrivateKey, cert: Path, key: Path
) -> None:
    cert.parent.mkdir(parents=True, exist_ok=True)
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    # The traditional form, which the API server takes for service account keys too.
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
