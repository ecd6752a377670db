"""Our AdmissionCheck loses its condition, is deleted and made again, while jobs run and wait."""

from __future__ import annotations

import json
import time

from tests.integration.cluster import NO_RESTARTS, Manifest, Tenant, kueue
from tests.integration.kueue.conftest import SECONDS, is_true, told, uids

QUIET_SECONDS = 3


def check_of(tenant: Tenant) -> Manifest:
    """The tenant's AdmissionCheck; empty while there is none."""
    found = tenant.sandbox.kubectl(
        "get", "admissioncheck", tenant.name, "--ignore-not-found", "-o", "json"
    )
    parsed: Manifest = json.loads(found or "{}")
    return parsed


def patch_check(tenant: Tenant, body: Manifest, *arguments: str) -> None:
    """Patch it as an administrator."""
    tenant.sandbox.kubectl(
        *("patch", "admissioncheck", tenant.name, "--type=merge", "-p", json.dumps(body)),
        *arguments,
    )


def test_our_check_loses_its_condition_and_is_made_again(tenant: Tenant) -> None:
    tenant.nodes(2)
    tenant.queue(2, check=True)
    runs = tenant.submit("runs")
    tenant.wait(runs, "Running")
    pods = uids(tenant, runs)
    waits = tenant.submit("waits")

    patch_check(tenant, {"status": {"conditions": []}}, "--subresource=status")
    tenant.eventually(lambda: is_true(check_of(tenant), "Active"), "active again", SECONDS)

    old = check_of(tenant)["metadata"]["uid"]
    tenant.sandbox.kubectl("delete", "admissioncheck", tenant.name, "--wait=false")
    patch_check(tenant, {"metadata": {"finalizers": None}})
    tenant.eventually(lambda: not check_of(tenant), "deleted")
    late = tenant.submit("late")
    assert "active AdmissionCheck: kubectl describe it" in told(tenant, late, "Inadmissible")
    time.sleep(QUIET_SECONDS)
    assert uids(tenant, runs) == pods, "what runs is left alone"
    tenant.apply(kueue("AdmissionCheck", tenant.name, {"controllerName": "goodput.dev/power"}))
    tenant.eventually(lambda: is_true(check_of(tenant), "Active"), "active again", SECONDS)
    assert check_of(tenant)["metadata"]["uid"] != old
    assert uids(tenant, runs) == pods
    assert tenant.status(runs)["restarts"] == NO_RESTARTS
    tenant.patch(runs, {"suspend": True})
    tenant.wait(waits, "Running", 30)
    tenant.patch(waits, {"suspend": True})
    tenant.wait(late, "Running", 30)
