"""The headless Service that gives every rank a DNS name."""

from typing import Any

from goodput_operator import constants as c
from goodput_operator.builders import ranks
from goodput_operator.domain.model import JobView
from goodput_operator.domain.names import service_name


def build_service(job: JobView) -> dict[str, Any]:
    """One per job, for all its attempts.

    Addresses are published before pods are ready: ranks become ready only once they have met.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(job.key.name),
            "namespace": job.key.namespace,
            "labels": ranks.job_labels(job),
            "ownerReferences": [ranks.owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {c.LABEL_JOB_UID: job.uid},
            "ports": [
                {
                    "name": ranks.COORDINATOR_PORT_NAME,
                    "port": ranks.coordinator_port(ranks.spec_of(job)),
                }
            ],
        },
    }
