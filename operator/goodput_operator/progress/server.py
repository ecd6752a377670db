"""The progress endpoint: HTTPS, POST only, one path per TrainingJob."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from goodput_operator import constants as c
from goodput_operator.domain.health import checkpoint_request
from goodput_operator.domain.heard import Heard
from goodput_operator.domain.interval import published
from goodput_operator.domain.model import JobKey, JobView
from goodput_operator.kube.errors import ApiError
from goodput_operator.progress import certificates
from goodput_operator.progress.auth import Authenticator, Sender, authorise
from goodput_operator.progress.memory import Memory
from goodput_operator.progress.ports import ProgressClient, ProgressStore
from goodput_operator.progress.recorder import Recorder
from goodput_operator.progress.refusal import Outcome, RefusedError
from goodput_operator.progress.report import Report, parse_report
from goodput_operator.progress.throttle import Throttle
from goodput_operator.progress.trust import Trust, load_trust

log = logging.getLogger(__name__)

PATH = f"/v1/namespaces/{{namespace}}/{c.PLURAL}/{{name}}/progress"
MAX_BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
"""Longest time for a body to arrive."""
POD_RATE, POD_BURST = 5.0, 20.0
"""Reports per second and pod."""
REVIEW_RATE, REVIEW_BURST = 50.0, 500.0
"""Tokens not seen before, per second and source address; many pods may share one address."""
SHUTDOWN_SECONDS = 5.0
ATTEND_SECONDS = 1.0
"""The memory of reports is looked after this often."""


@dataclass(frozen=True, slots=True)
class ProgressConfig:
    """Where the endpoint listens, how pods reach it, and how often it writes."""

    address: str
    """``host:port`` that pods post to; its host is in the server's certificate."""
    namespace: str
    """The operator's own: the CA's Secret is in it."""
    listen_host: str = "0.0.0.0"
    listen_port: int = 8443
    interval_seconds: float = 30.0
    """Progress that is not durable is written at most this often per job."""
    certificate_seconds: float = 3600.0
    """The certificates are looked after this often."""


class ProgressServer:
    """Started by the leader, once the store is primed; ``ca_pem`` is known after ``prepare``."""

    def __init__(
        self,
        config: ProgressConfig,
        store: ProgressStore,
        client: ProgressClient,
        *,
        on_outcome: Callable[[str], None] = lambda outcome: None,
        on_applied: Callable[[Mapping[str, Any]], None] = lambda raw: None,
        on_trust: Callable[[str], None] = lambda pem: None,
    ) -> None:
        """``on_outcome`` counts reports by what became of them; ``on_applied`` gets each
        TrainingJob as a write returned it, for the store to read its own writes; ``on_trust``
        gets ``ca_pem`` at the start, and whenever it changes."""
        certificates.host_of(config.address)
        self._config, self._store, self._client = config, store, client
        self._on_outcome = on_outcome
        self._authenticator = Authenticator(client)
        self._recorder = Recorder(client, store, config.interval_seconds, on_applied=on_applied)
        self._memory = Memory(store)
        self._pods = Throttle(POD_RATE, POD_BURST)
        self._reviews = Throttle(REVIEW_RATE, REVIEW_BURST)
        self._on_trust = on_trust
        self._trust: Trust | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certificate: certificates.ServerCertificate | None = None
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ca_pem(self) -> str:
        """What pods are to trust. Raises RuntimeError before ``prepare``."""
        if self._trust is None:
            raise RuntimeError("the progress server has no CA before prepare()")
        return self._trust.pem

    @property
    def port(self) -> int:
        """The port it listens on; another than configured if that was 0."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the progress server does not listen before start()")
        return int(self._runner.addresses[0][1])

    def heard(self) -> Heard | None:
        """What the ranks have reported; None while it does not listen."""
        return self._memory.view()

    async def prepare(self) -> None:
        """Load the CAs, or create them. Raises ApiError and CertificateError."""
        if self._trust is None:
            await self.look_after_certificates(datetime.now(UTC))

    async def look_after_certificates(self, now: datetime) -> None:
        """Renew what is due by ``now``, and take over what was renewed by others.

        Raises ApiError and CertificateError; all then stays as it is.
        """
        before = self._trust
        trust = await load_trust(self._client, self._config.namespace, now, before)
        if before is None or trust.current.certificate != before.current.certificate:
            _tell_gap(before, trust)
            await self._serve_certificate(trust, now)
        self._trust = trust
        if before is None or trust.pem != before.pem:
            self._on_trust(trust.pem)

    async def _serve_certificate(self, trust: Trust, now: datetime) -> None:
        """Have new connections served with a new certificate of the current CA."""
        server = certificates.issue(trust.current, self._config.address, now)
        await asyncio.to_thread(certificates.load_into, self._context, server)
        self._certificate = server

    async def _keep_certificates(self) -> None:
        while True:
            await asyncio.sleep(self._config.certificate_seconds)
            now = datetime.now(UTC)
            try:
                await self.look_after_certificates(now)
            except (ApiError, certificates.CertificateError) as error:
                log.error("%s; the progress certificates stay as they are", error)
            if self._trust and self._certificate and self._certificate.is_stale(now):
                await self._serve_certificate(self._trust, now)

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken, and what ``prepare`` raises."""
        await self.prepare()
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            keepalive_timeout=75.0,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await self._runner.setup()
        await web.TCPSite(
            self._runner,
            self._config.listen_host,
            self._config.listen_port,
            ssl_context=self._context,
        ).start()
        self._memory.listen()
        self._tasks = [
            asyncio.create_task(self._attend(), name="progress-memory"),
            asyncio.create_task(self._recorder.run(), name="progress-recorder"),
            asyncio.create_task(self._keep_certificates(), name="progress-certificates"),
        ]
        log.info("progress endpoint listens on port %d as %s", self.port, self._config.address)

    async def _attend(self) -> None:
        while True:
            await asyncio.sleep(ATTEND_SECONDS)
            self._memory.attend()
            self._memory.forget()

    async def stop(self) -> None:
        """Stop listening, write what is not written yet, end the tasks."""
        self._memory.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._authenticator.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._recorder.flush()

    def application(self) -> web.Application:
        """The routes, without TLS."""
        application = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[self._answer_in_json]
        )
        application.router.add_post(PATH, self._post)
        return application

    @web.middleware
    async def _answer_in_json(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        """Count the outcome; errors become ``{"error": …}``."""
        try:
            response: web.StreamResponse = await handler(request)
        except RefusedError as refusal:
            log.debug("%s %s refused: %s", request.method, request.path, refusal.message)
            self._on_outcome(refusal.outcome)
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else None
            return web.json_response(
                {"error": refusal.message}, status=refusal.status, headers=headers
            )
        except web.HTTPRequestEntityTooLarge:
            self._on_outcome(Outcome.INVALID)
            message = f"body: over {MAX_BODY_BYTES} bytes; send the fields of a report only"
            return web.json_response({"error": message}, status=413)
        except web.HTTPException as error:
            self._on_outcome(Outcome.INVALID)
            message = f"{request.method} {request.path}: {error.reason}; POST to {PATH}"
            return web.json_response({"error": message}, status=error.status)
        self._on_outcome(Outcome.ACCEPTED)
        return response

    async def _post(self, request: web.Request) -> web.Response:
        key = JobKey(request.match_info["namespace"], request.match_info["name"])
        remote = request.remote or "unknown"
        try:
            identity = await self._authenticator.identify(
                request.headers.get("Authorization"), lambda: self._reviews.take(remote)
            )
        except RefusedError as refusal:
            if refusal.outcome is Outcome.UNAVAILABLE:
                self._memory.missed()
            raise
        self._pods.take(f"pod {identity.namespace}/{identity.name}")
        sender = authorise(identity, key, self._store)
        report = parse_report(await _body(request))
        check_sender(report, sender)
        durable = await self._recorder.record(
            sender.job, report, lambda: self._memory.hear(sender.pod, report)
        )
        return web.json_response(answer(self._store.job(key) or sender.job, durable))


def answer(job: JobView, durable: int | None) -> dict[str, Any]:
    """What a rank is told: what is recorded, how often to save, and whether to save now."""
    told: dict[str, Any] = {"durableStep": durable}
    interval = published(job)
    if interval is not None:
        told["checkpointIntervalSeconds"] = interval
    request = checkpoint_request(job.status)
    if request is not None:
        told["checkpointRequest"] = request
    return told


def _tell_gap(before: Trust | None, trust: Trust) -> None:
    """Say so when the CA was replaced by one that running pods were never told of."""
    if before is None or trust.current.certificate == before.successor.certificate:
        return
    log.warning("the progress CA was replaced by another: pods that run can no longer report")


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        message = f"body: not whole after {BODY_SECONDS:g} s; send it at once"
        raise RefusedError(Outcome.INVALID, message, status=408) from None


def check_sender(report: Report, sender: Sender) -> None:
    """A rank speaks for itself, and only rank 0 for the checkpoint. Raises RefusedError."""
    for name, said, known, variable in (
        ("attempt", report.attempt, sender.pod.attempt, "GOODPUT_ATTEMPT"),
        ("role", report.role, sender.pod.role, "GOODPUT_ROLE"),
        ("rank", report.rank, sender.rank, "GOODPUT_RANK"),
    ):
        if said != known:
            raise RefusedError(
                Outcome.INVALID,
                f"{name}: {said!r} is not that of pod {sender.pod.name}, which is {known!r}; "
                f"report the value of {variable}",
            )
    if report.checkpoint_step is not None and sender.rank != 0:
        raise RefusedError(
            Outcome.FORBIDDEN,
            f"checkpointStep: {report.checkpoint_step} is claimed by rank {sender.rank}; only "
            f"rank 0 may, once the checkpoint is complete; leave the field out on other ranks",
        )
