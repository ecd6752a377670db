"""The CAs that pods trust: the one that signs, and its successor.

Pods get the certificates of both when they are created. So when the successor takes over, those
that run trust it already: none of them is touched, and no report fails. Only a pod that outlives
two rotations is cut off; a CA lives for ten years.

Both are kept in a Secret of the operator's namespace, since a restarted operator, or its other
replica, must sign with the same keys.
"""

import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from goodput_operator.kube.errors import AlreadyExists, Conflict, NotFound
from goodput_operator.kube.paths import SECRETS
from goodput_operator.progress.certificates import (
    CA_DAYS,
    Authority,
    CertificateError,
    key_pem,
    new_authority,
)
from goodput_operator.progress.ports import ProgressClient

log = logging.getLogger(__name__)

SECRET_NAME = "goodput-operator-progress-tls"
CURRENT = ("ca.crt", "ca.key")
SUCCESSOR = ("next-ca.crt", "next-ca.key")
ROTATE_BEFORE = timedelta(days=365)
"""The successor takes over so long before the CA's end."""
TRIES = 5


@dataclass(frozen=True, slots=True)
class Trust:
    """What pods trust."""

    current: Authority
    """Signs the server's certificate."""
    successor: Authority
    """Takes over from it, and is trusted by pods already."""

    @property
    def pem(self) -> str:
        """Both certificates, as pods are given them."""
        return self.current.pem + self.successor.pem


def renewed(current: Authority | None, successor: Authority | None, now: datetime) -> Trust:
    """Both CAs as they should be at ``now``; the same ones while nothing is due.

    The successor takes over when there is no current one, or its end is near. A new successor
    lives longer than the CA before it by a whole life, so that two rotations are years apart.
    """
    if current is None or current.expires_at <= now + ROTATE_BEFORE:
        current, successor = successor, None
    life = timedelta(days=CA_DAYS)
    if current is None or current.expires_at <= now + ROTATE_BEFORE:
        current = new_authority(now, now + life)
    if successor is None:
        successor = new_authority(now, current.expires_at + life)
    return Trust(current, successor)


def first(now: datetime) -> Trust:
    """Two new CAs."""
    return renewed(None, None, now)


async def load_trust(
    client: ProgressClient, namespace: str, now: datetime, known: Trust | None = None
) -> Trust:
    """The CAs out of their Secret, renewed if that is due; it is created if there is none.

    ``known`` is what this process has been using: it is put back if the Secret was deleted. When
    two replicas write at once, both take what was written first. Raises ApiError, and
    CertificateError when what the Secret holds are no CAs of ours.
    """
    for _ in range(TRIES):
        try:
            secret = await client.get(SECRETS, namespace, SECRET_NAME)
        except NotFound:
            trust = renewed(known.current, known.successor, now) if known else first(now)
            try:
                await client.create(SECRETS, secret_body(trust, namespace))
            except AlreadyExists:
                continue
            return trust
        found = read_secret(secret, f"Secret {namespace}/{SECRET_NAME}")
        trust = renewed(*found, now)
        if (trust.current, trust.successor) == found:
            return trust
        version = secret["metadata"].get("resourceVersion")
        patch = {"metadata": {"resourceVersion": version}, "data": _data(trust)}
        try:
            await client.patch(SECRETS, namespace, SECRET_NAME, patch)
        except Conflict:
            continue
        log.info("the progress CAs are renewed: the current one ends %s", trust.current.expires_at)
        return trust
    raise CertificateError(f"Secret {namespace}/{SECRET_NAME}: others change it all the time")


def secret_body(trust: Trust, namespace: str) -> dict[str, Any]:
    """The Secret that keeps both CAs."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET_NAME,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "goodput-operator"},
        },
        "type": "Opaque",
        "data": _data(trust),
    }


def _data(trust: Trust) -> dict[str, str]:
    data = {}
    for fields, authority in ((CURRENT, trust.current), (SUCCESSOR, trust.successor)):
        for field, pem in zip(
            fields, (authority.pem.encode(), key_pem(authority.key)), strict=True
        ):
            data[field] = base64.b64encode(pem).decode()
    return data


def read_secret(
    secret: Mapping[str, Any], source: str
) -> tuple[Authority | None, Authority | None]:
    """The CAs that a Secret holds: one at least. Raises CertificateError."""
    data = secret.get("data") or {}
    current, successor = (
        _authority(data, fields, source) if any(each in data for each in fields) else None
        for fields in (CURRENT, SUCCESSOR)
    )
    if current is None and successor is None:
        raise CertificateError(f"{source} holds no CA; {_remedy(source)}")
    return current, successor


def _remedy(source: str) -> str:
    return f"delete {source}: the operator makes it anew, for new pods if it was restarted since"


def _authority(data: Mapping[str, Any], fields: tuple[str, str], source: str) -> Authority:
    remedy = _remedy(source)
    try:
        pems = [base64.b64decode(data[field], validate=True) for field in fields]
        certificate = x509.load_pem_x509_certificate(pems[0])
        key = serialization.load_pem_private_key(pems[1], password=None)
        certificate.verify_directly_issued_by(certificate)
    except (KeyError, TypeError, ValueError, binascii.Error, InvalidSignature) as error:
        raise CertificateError(f"{source} holds no CA in {fields} ({error!r}); {remedy}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{source}: {fields[1]} is no elliptic-curve key; {remedy}")
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"{source}: {fields[1]} does not belong to {fields[0]}; {remedy}")
    return Authority(certificate, key)
