"""``/healthz``, ``/readyz`` and ``/metrics``, over plain HTTP."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from goodput_operator.runtime.operator import Operator


def application(operator: Operator) -> web.Application:
    """The routes."""

    async def healthz(_: web.Request) -> web.Response:
        ailment = operator.ailment()
        return web.Response(text=ailment or "ok", status=503 if ailment else 200)

    async def readyz(_: web.Request) -> web.Response:
        if operator.ready:
            return web.Response(text="ok")
        return web.Response(text="not everything is listed yet", status=503)

    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(operator.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    served = web.Application()
    served.router.add_get("/healthz", healthz)
    served.router.add_get("/readyz", readyz)
    served.router.add_get("/metrics", metrics)
    return served


async def serve(operator: Operator, address: str) -> web.AppRunner:
    """Listen on ``host:port`` until the runner is cleaned up. Raises OSError if it is taken."""
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application(operator), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    return runner
