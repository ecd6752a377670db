"""What the API server refuses the operator is told in the job's status, with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from goodput_sandbox.options import REPOSITORY
from tests.integration.cluster import Tenant

SECONDS = 10.0
ROLE = "goodput-operator"
RIGHTS = REPOSITORY / "sandbox" / "manifests" / "operator-rbac.yaml"


@pytest.fixture
def forbid(tenant: Tenant) -> Iterator[Callable[[str], None]]:
    """Takes from the operator the right to create a kind; it has it back after the test."""

    def take(resource: str) -> None:
        role = json.loads(tenant.sandbox.kubectl("get", "clusterrole", ROLE, "-o", "json"))
        for rule in role["rules"]:
            if resource in rule["resources"]:
                rule["verbs"].remove("create")
        tenant.sandbox.kubectl("replace", "-f", "-", input=json.dumps(role))

    yield take
    tenant.sandbox.apply(RIGHTS)


@pytest.mark.parametrize("resource", ["workloads", "services", "pods"])
def test_case_15_a_forbidden_create_is_told_within_10_s(
    tenant: Tenant, forbid: Callable[[str], None], resource: str
) -> None:
    tenant.nodes(2)
    tenant.queue(2)
    forbid(resource)
    job = tenant.submit()
    tenant.eventually(lambda: tenant.status(job).get("reason") == "APIError", "told", SECONDS)
    conditions = {each["type"]: each for each in tenant.status(job)["conditions"]}
    assert conditions["Running"]["reason"] == "APIError"
    message = conditions["Running"]["message"]
    assert f"create {resource}" in message
    assert f'cannot create resource "{resource}"' in message
    tenant.sandbox.apply(RIGHTS)
    tenant.wait(job, "Running", timeout=90)
