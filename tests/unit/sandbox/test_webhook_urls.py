"""Kueue's webhooks, called by URL instead of through a Service."""

import base64

from goodput_sandbox.kueue import merge, with_urls

BASE = "https://127.0.0.1:9443"


def test_a_service_becomes_a_url_with_its_path_and_our_authority() -> None:
    service = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/validate"}
    webhook = {"name": "v", "clientConfig": {"service": service}, "failurePolicy": "Fail"}
    changed = with_urls({"kind": "V", "webhooks": [webhook]}, BASE, "CA")
    assert changed["webhooks"] == [
        {
            "name": "v",
            "clientConfig": {
                "url": f"{BASE}/validate",
                "caBundle": base64.b64encode(b"CA").decode(),
            },
            "failurePolicy": "Fail",
        }
    ]


def test_a_conversion_webhook_deep_in_a_crd_is_found() -> None:
    config = {"clientConfig": {"service": {"name": "s", "path": "/convert"}}}
    crd = {"spec": {"conversion": {"strategy": "Webhook", "webhook": config}}}
    changed = with_urls(crd, BASE, "CA")
    assert changed["spec"]["conversion"]["webhook"]["clientConfig"]["url"] == f"{BASE}/convert"


def test_what_is_no_webhook_stays_as_it_is() -> None:
    role = {"kind": "Role", "rules": [{"verbs": ["get"]}], "clientConfig": None}
    assert with_urls(role, BASE, "CA") == role


def test_configuration_is_merged_by_key_and_lists_are_replaced() -> None:
    base = {"integrations": {"frameworks": ["a", "b"], "other": 1}, "kept": True}
    over = {"integrations": {"frameworks": ["c"]}, "new": {"x": 1}}
    assert merge(base, over) == {
        "integrations": {"frameworks": ["c"], "other": 1},
        "kept": True,
        "new": {"x": 1},
    }
