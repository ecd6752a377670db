"""Every way in which a request can fail has its class, and says what was attempted."""

import pytest

from goodput_operator.kube import errors
from goodput_operator.kube.errors import ApiError, from_response
from goodput_operator.kube.transport import describe, plural_of


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (404, "", errors.NotInstalled),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.Transient),
        (500, "InternalError", errors.Transient),
        (503, "ServiceUnavailable", errors.Transient),
        (418, "Teapot", ApiError),
    ],
)
def test_a_status_code_has_its_class(code: int, reason: str, kind: type[ApiError]) -> None:
    error = from_response("create pods", code, {"reason": reason, "message": "why\n"}, None)
    assert type(error) is kind
    assert str(error).startswith("create pods: ")
    assert not str(error).endswith("\n")


def test_a_webhook_that_fails_is_not_one_that_refuses() -> None:
    said = 'Internal error occurred: failed calling webhook "mworkload.kb.io": refused'
    failed = from_response("create workloads", 500, {"message": said}, None)
    assert type(failed) is errors.WebhookFailed
    assert failed.transient
    denied = 'admission webhook "vworkload.kb.io" denied the request: spec.podSets'
    assert type(from_response("create", 422, {"message": denied}, None)) is errors.Invalid


@pytest.mark.parametrize(
    "kind", [errors.Forbidden, errors.Invalid, errors.NotInstalled, errors.WebhookFailed]
)
def test_what_a_person_must_mend_has_a_remedy(kind: type[ApiError]) -> None:
    assert kind("a", "b").remedy


@pytest.mark.parametrize(
    ("path", "words", "plural"),
    [
        ("/api/v1/nodes", "list nodes", "nodes"),
        ("/api/v1/namespaces", "list namespaces", "namespaces"),
        ("/api/v1/namespaces/team-a", "list namespaces team-a", "namespaces"),
        ("/api/v1/namespaces/team-a/pods", "list pods in namespace team-a", "pods"),
        ("/api/v1/namespaces/team-a/pods/x", "list pods x in namespace team-a", "pods"),
        (
            "/apis/goodput.dev/v1alpha1/namespaces/n/trainingjobs/a/status",
            "list trainingjobs.goodput.dev a in namespace n, status",
            "trainingjobs",
        ),
        (
            "/apis/kueue.x-k8s.io/v1beta2/admissionchecks/power",
            "list admissionchecks.kueue.x-k8s.io power",
            "admissionchecks",
        ),
    ],
)
def test_a_request_is_described_in_words(path: str, words: str, plural: str) -> None:
    assert describe("list", path) == words
    assert plural_of(path) == plural
