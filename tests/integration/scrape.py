"""What the operator and the API server count, read from their metrics."""

from __future__ import annotations

import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from goodput_sandbox.sandbox import Sandbox
from goodput_sandbox.testing import wait_for
from tests.integration.api import Api

START_SECONDS = 30.0
REJECTED = {str(code) for code in range(400, 500)} - {"404", "409", "429"}
"""What is gone already (404) or has changed since (409) is looked at anew; any other write that the
server refuses is one that should not have been sent."""


def operator_samples(sandbox: Sandbox) -> list[Sample]:
    """All series of the operator, which may have been started just now."""
    port = sandbox.forward(sandbox.ports.operator_health)
    texts: list[str] = []

    def served() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            texts.append(answer.read().decode())
        return True

    wait_for(served, START_SECONDS, "metrics of the operator")
    return samples(texts[-1])


def samples(text: str) -> list[Sample]:
    """The series of a text."""
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def requests(sandbox: Sandbox, verbs: set[str]) -> Counter[tuple[str, str, str]]:
    """Requests of the operator so far, by verb, resource and status code."""
    found: Counter[tuple[str, str, str]] = Counter()
    for sample in operator_samples(sandbox):
        if sample.name != "goodput_operator_api_requests_total":
            continue
        verb, resource, code = (sample.labels[name] for name in ("verb", "resource", "code"))
        if verb in verbs:
            found[verb, resource, code] += int(sample.value)
    return found


def creations(api: Api, resource: str) -> int:
    """Requests to create objects of a resource, from whomever, as the API server counts them."""
    lines = api.text("/metrics").splitlines()
    wanted = [line for line in lines if line.startswith("apiserver_request_total{")]
    return sum(
        int(one.value)
        for one in samples("\n".join(wanted))
        if (one.labels["verb"], one.labels["resource"]) == ("POST", resource)
        and not one.labels["subresource"]
    )
