"""Who may report progress, by the API server's own verdict on real tokens bound to real pods."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from goodput_sandbox.operator_process import start_operator, stop_operator
from goodput_sandbox.sandbox import Sandbox
from tests.integration.cluster import Manifest, Tenant
from tests.integration.conftest import SHORT

AUDIENCE = "goodput.dev/progress"


class Reporter:
    """Posts as a rank would, trusting what its pod's annotation says."""

    def __init__(self, sandbox: Sandbox, pod: Manifest) -> None:
        self.sandbox, self.pod = sandbox, pod
        labels = pod["metadata"]["labels"]
        self.job = labels["goodput.dev/job"]
        self.attempt, self.rank = int(labels["goodput.dev/attempt"]), labels["goodput.dev/rank"]
        self.context = ssl.create_default_context(
            cadata=pod["metadata"]["annotations"]["goodput.dev/progress-ca"]
        )

    def token(self, audience: str = AUDIENCE, *, bound: bool = True) -> str:
        """A token of the pod's service account, as its kubelet would ask for one."""
        metadata = self.pod["metadata"]
        to_pod = [
            "--bound-object-kind=Pod",
            f"--bound-object-name={metadata['name']}",
            f"--bound-object-uid={metadata['uid']}",
        ]
        made = self.sandbox.kubectl(
            *("create", "token", "default", "-n", metadata["namespace"]),
            *(f"--audience={audience}", "--duration=10m", *(to_pod if bound else ())),
        )
        return made.strip()

    def post(self, token: str | None, job: str | None = None, **fields: Any) -> tuple[int, str]:
        """Status and body of the answer to a report."""
        report = {"attempt": self.attempt, "role": "worker", "rank": int(self.rank), "step": 5}
        namespace = self.pod["metadata"]["namespace"]
        connection = self.connect()
        connection.request(
            "POST",
            f"/v1/namespaces/{namespace}/trainingjobs/{job or self.job}/progress",
            json.dumps({**report, **fields}),
            {"Authorization": f"Bearer {token}"} if token is not None else {},
        )
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    def connect(self, name: str | None = None) -> http.client.HTTPConnection:
        """A connection on which the server has proved to be the one that the pod is told of."""
        sandbox = self.sandbox
        port = sandbox.forward(sandbox.ports.operator_progress, sandbox.inside_address)
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            secured = self.context.wrap_socket(
                plain, server_hostname=name or sandbox.inside_address
            )
        except ssl.SSLError:
            plain.close()
            raise
        connection = http.client.HTTPConnection(sandbox.inside_address)
        connection.sock = secured
        return connection


@pytest.fixture
def running(tenant: Tenant) -> tuple[Tenant, Reporter]:
    """A running job of two ranks, and its rank 0."""
    tenant.nodes(3)
    tenant.queue(4)
    job = tenant.submit()
    tenant.wait(job, "Running")
    return tenant, rank_zero(tenant, job)


def rank_zero(tenant: Tenant, job: str) -> Reporter:
    pods = sorted(tenant.pods(job), key=lambda pod: str(pod["metadata"]["name"]))
    return Reporter(tenant.sandbox, pods[0])


def resigned(sandbox: Sandbox, token: str, *, forged: bool = False, **claims: Any) -> str:
    """The token with other claims, signed anew: by the cluster's own key, or by a forger's."""
    head, payload, _ = token.split(".")
    changed = {**json.loads(base64.urlsafe_b64decode(payload + "==")), **claims}
    body = f"{head}.{encoded(json.dumps(changed).encode())}"
    key = serialization.load_pem_private_key((sandbox.pki_dir / "admin.key").read_bytes(), None)
    if forged:
        key = ec.generate_private_key(ec.SECP256R1())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    parts = decode_dss_signature(key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{body}.{encoded(b''.join(part.to_bytes(32, 'big') for part in parts))}"


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def expired(reporter: Reporter) -> str:
    now = int(time.time())
    times = {"iat": now - 900, "nbf": now - 900, "exp": now - 300}
    return resigned(reporter.sandbox, reporter.token(), **times)


def signed_by_somebody_else(reporter: Reporter) -> str:
    return resigned(reporter.sandbox, reporter.token(), forged=True)


def with_a_changed_claim(reporter: Reporter) -> str:
    token = reporter.token()
    _, changed, _ = resigned(reporter.sandbox, token, exp=int(time.time()) + 90_000).split(".")
    head, _, signature = token.split(".")
    return f"{head}.{changed}.{signature}"


BAD: dict[str, Callable[[Reporter], str | None]] = {
    "none": lambda reporter: None,
    "that is no token": lambda reporter: "hello",
    "expired": expired,
    "forged by another key": signed_by_somebody_else,
    "forged by a changed claim": with_a_changed_claim,
    "for another audience": lambda reporter: reporter.token("https://kubernetes.default.svc"),
    "bound to no pod": lambda reporter: reporter.token(bound=False),
}


def test_a_rank_is_heard_by_its_pods_token(running: tuple[Tenant, Reporter]) -> None:
    tenant, reporter = running
    assert reporter.post(reporter.token(), checkpointStep=4) == (200, '{"durableStep": 4}')
    status = tenant.status(reporter.job)
    assert (status["checkpoint"]["step"], status["progress"]["step"]) == (4, 5)


def test_bad_tokens_are_refused_and_leave_no_trace(running: tuple[Tenant, Reporter]) -> None:
    tenant, reporter = running
    # The cluster does take tokens that are made in this way: what is refused is what is wrong.
    made_here = resigned(reporter.sandbox, reporter.token(), iat=int(time.time()) - 5)
    assert reporter.post(made_here, step=1)[0] == 200
    for what, make in BAD.items():
        status, body = reporter.post(make(reporter), step=900, checkpointStep=900)
        assert status == 401, f"token {what}: {body}"
        remedy = "GOODPUT_PROGRESS_TOKEN_FILE"
        assert remedy in body, f"token {what}: {body}"
    assert reporter.post(reporter.token(), step=2, checkpointStep=2)[0] == 200
    status = tenant.status(reporter.job)
    assert (status["checkpoint"]["step"], status["progress"]["step"]) == (2, 2)


def test_a_token_is_good_for_its_own_job_and_rank_only(running: tuple[Tenant, Reporter]) -> None:
    tenant, reporter = running
    other = tenant.submit("other", replicas=1)
    tenant.wait(other, "Running")
    token = reporter.token()
    status, body = reporter.post(token, other, checkpointStep=5)
    assert (status, "it is no pod of TrainingJob" in body) == (403, True)
    assert reporter.post(token, "nobody")[0] == 404
    assert reporter.post(token, rank=1)[0] == 400
    assert reporter.post(token, attempt=7)[0] == 400
    second = Reporter(tenant.sandbox, tenant.pods(reporter.job)[1])
    assert second.post(second.token(), checkpointStep=5)[0] == 403
    assert "checkpoint" not in tenant.status(other)
    assert "checkpoint" not in tenant.status(reporter.job)


@pytest.mark.parametrize("heard", [False, True], ids=["never heard before", "heard before"])
def test_a_deleted_pods_token_is_refused(running: tuple[Tenant, Reporter], heard: bool) -> None:
    tenant, reporter = running
    token = reporter.token()
    if heard:
        assert reporter.post(token)[0] == 200
    tenant.patch(reporter.job, {"suspend": True})
    tenant.wait(reporter.job, "Suspended")
    status, body = reporter.post(token, step=900, checkpointStep=900)
    # A verdict that is still believed is of no use without the pod.
    assert status == (403 if heard else 401), body
    assert "checkpoint" not in tenant.status(reporter.job)


def test_a_pod_of_an_older_attempt_is_told_that_it_is_over(
    running: tuple[Tenant, Reporter],
) -> None:
    """It runs on behind a partition: its pod is there, and its token is good."""
    tenant, reporter = running
    token = reporter.token()
    tenant.sandbox.simulated.kill(reporter.pod["spec"]["nodeName"])
    tenant.wait(reporter.job, "Running", attempt=2)
    status, body = reporter.post(token, step=900, checkpointStep=900)
    assert (status, "attempt: 1 is over, attempt 2" in body) == (409, True)
    newer = rank_zero(tenant, reporter.job)
    assert newer.post(newer.token(), checkpointStep=3)[0] == 200
    assert (
        tenant.status(reporter.job)["checkpoint"] | {"step": 3}
        == (tenant.status(reporter.job)["checkpoint"])
    )


def test_a_rank_trusts_nobody_but_the_endpoint(running: tuple[Tenant, Reporter]) -> None:
    _, reporter = running
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        reporter.connect("10.1.2.3")
    reporter.context = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get"):
        reporter.connect()


SECRET = ("secret", "goodput-operator-progress-tls", "-n", "goodput-system")
ROTATE = json.dumps({"data": {"ca.crt": None, "ca.key": None}})


@pytest.fixture
def attentive(tenant: Tenant) -> Iterator[None]:
    """The operator looks after its certificates every second."""
    stop_operator(tenant.sandbox)
    start_operator(tenant.sandbox, {**SHORT, "GOODPUT_PROGRESS_CERTIFICATE_SECONDS": "1"})
    yield
    stop_operator(tenant.sandbox)


def test_no_report_fails_while_the_ca_is_rotated(
    attentive: None, running: tuple[Tenant, Reporter]
) -> None:
    tenant, reporter = running
    token, trusted = reporter.token(), reporter.pod["metadata"]["annotations"]
    answers: list[object] = []
    done = threading.Event()

    def report() -> None:
        while not done.wait(0.25):  # A pod may report five times a second.
            try:
                answers.append(reporter.post(token)[0])
            except OSError as error:
                answers.append(error)

    def authority() -> str:
        data = json.loads(tenant.sandbox.kubectl("get", *SECRET, "-o", "json"))["data"]
        return base64.b64decode(data.get("ca.crt", "")).decode()

    reporting = threading.Thread(target=report)
    reporting.start()
    try:
        old = authority()
        tenant.sandbox.kubectl("patch", *SECRET, "--type=merge", "-p", ROTATE)
        tenant.eventually(lambda: authority() not in ("", old), "another CA signs", 15)
        new = authority()
        assert new in trusted["goodput.dev/progress-ca"]
        tenant.sandbox.kubectl("delete", *SECRET)
        tenant.eventually(lambda: authority() == new, "the Secret is put back", 15)
        later = tenant.submit("later", replicas=1)
        tenant.wait(later, "Running")
        time.sleep(2)
    finally:
        done.set()
        reporting.join()
    assert len(answers) >= 5, "it has been reporting all the time"
    assert set(answers) == {200}
    newer = rank_zero(tenant, later)
    told = newer.pod["metadata"]["annotations"]["goodput.dev/progress-ca"]
    assert told.startswith(new)
    assert told != trusted["goodput.dev/progress-ca"]
    assert newer.post(newer.token())[0] == 200
