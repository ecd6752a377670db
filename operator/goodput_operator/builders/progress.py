"""What a pod needs to report its progress: the endpoint's address, a token and a CA."""

from dataclasses import dataclass
from typing import Any

from goodput_operator import constants as c
from goodput_operator.domain.model import JobView

VOLUME = "goodput-progress"
TOKEN_FILE = f"{c.PROGRESS_MOUNT_PATH}/token"
CA_FILE = f"{c.PROGRESS_MOUNT_PATH}/ca.crt"
TOKEN_SECONDS = 3600
"""Life of a token; the kubelet renews it before its end."""


@dataclass(frozen=True, slots=True)
class ProgressTarget:
    """The progress endpoint, as pods reach it."""

    address: str
    """``host:port``."""
    ca_pem: str
    """The CA that signed its certificate."""


def progress_url(job: JobView, target: ProgressTarget) -> str:
    """Where the ranks of this job report."""
    namespace, name = job.key
    path = f"v1/namespaces/{namespace}/{c.PLURAL}/{name}/progress"
    return f"https://{target.address}/{path}"


def progress_volume() -> dict[str, Any]:
    """A token that only the progress endpoint accepts, and the CA out of the pod's annotation."""
    return {
        "name": VOLUME,
        "projected": {
            "sources": [
                {
                    "serviceAccountToken": {
                        "audience": c.PROGRESS_AUDIENCE,
                        "expirationSeconds": TOKEN_SECONDS,
                        "path": "token",
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "ca.crt",
                                "fieldRef": {
                                    "fieldPath": (
                                        f"metadata.annotations['{c.ANNOTATION_PROGRESS_CA}']"
                                    )
                                },
                            }
                        ]
                    }
                },
            ]
        },
    }


def progress_mount() -> dict[str, Any]:
    """Where containers find the volume."""
    return {"name": VOLUME, "mountPath": c.PROGRESS_MOUNT_PATH, "readOnly": True}
