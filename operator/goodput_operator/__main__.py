"""The operator's process: settings, logs, servers, the worker and kopf's watches."""

import argparse
import asyncio
import contextlib
import itertools
import logging
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import kopf
from prometheus_client import disable_created_metrics

from goodput_operator import __version__, handlers, logs
from goodput_operator.builders.progress import ProgressTarget
from goodput_operator.config import Config, ConfigError, load
from goodput_operator.kube.client import Client, connect
from goodput_operator.kube.errors import CredentialsError
from goodput_operator.metrics import Metrics
from goodput_operator.progress.server import ProgressConfig, ProgressServer
from goodput_operator.runtime import health
from goodput_operator.runtime.operator import Operator

log = logging.getLogger("goodput_operator")

EXIT_CONFIG = 2
DRAIN_SECONDS = 4.0
STOP_SECONDS = 8.0
"""Longest times to finish what has begun, and then to stop in; pods have 30 s by default."""
KOPF_WAITS = (1.0, 2.0, 5.0, 10.0)
KOPF_STEADY_SECONDS = 30.0
"""Waits before the watches begin anew, time after time; once they last so long, the first again."""


def main() -> None:
    """Entry point of ``goodput-operator`` and ``python -m goodput_operator``."""
    parser = argparse.ArgumentParser(prog="goodput-operator", description=__doc__)
    parser.add_argument("--config", help="YAML file of settings; GOODPUT_* variables beat it")
    parser.add_argument("--version", action="version", version=__version__)
    try:
        config = load(file=parser.parse_args().config)
    except ConfigError as error:
        sys.stderr.write(f"goodput-operator: {error}\n")
        sys.exit(EXIT_CONFIG)
    logs.set_up(config.log_level, config.log_format == "json")
    disable_created_metrics()  # type: ignore[no-untyped-call]
    sys.exit(asyncio.run(run(config)))


async def run(config: Config) -> int:
    """Run until SIGTERM or SIGINT (0), or until a part fails for good (1; 2: no credentials)."""
    stop = asyncio.Event()
    _stop_on_signals(stop)

    async def connected(metrics: Metrics) -> Client:
        return await connect(config.kubeconfig, metrics, config.request_timeout_seconds)

    operator = Operator(config, connected)
    serving = asyncio.create_task(_serve(operator, stop), name="operator")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stop.set()
        error = serving.exception()
        if isinstance(error, CredentialsError):
            log.error("%s", error)
            return EXIT_CONFIG
        log.error("stopped by an error", exc_info=error)
        return 1
    log.info("stopping")
    await operator.drain(DRAIN_SECONDS)
    if operator.ready:
        await asyncio.wait({serving}, timeout=STOP_SECONDS)
    serving.cancel()
    await asyncio.wait({serving}, timeout=1.0)
    log.info("stopped")
    return 0


async def _serve(operator: Operator, stop: asyncio.Event) -> None:
    """Servers first, then list, then watch and work."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(operator.close)
        runner = await health.serve(operator, operator.config.health_listen)
        stack.push_async_callback(runner.cleanup)
        await operator.connect()
        version = await operator.prime()
        if operator.config.progress_address:
            server = progress_server(operator, operator.config.progress_address)
            await server.start()
            stack.push_async_callback(server.stop)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(operator.work(version), name="work")
                group.create_task(_watch(operator, stop), name="kopf")
        except* _Stopped:
            log.debug("kopf has stopped")


class _Stopped(Exception):  # noqa: N818 - it is no error
    """kopf has ended as it was asked to: so does everything else."""


async def _watch(operator: Operator, stop: asyncio.Event) -> None:
    """Have kopf watch until ``stop``, then raise _Stopped.

    kopf ends at answers that it has no answer to, such as 410 as the status of a watch, another
    error within a stream, or half a line. Then it begins anew, with a list of everything.
    """
    waits = itertools.chain(KOPF_WAITS, itertools.repeat(KOPF_WAITS[-1]))
    while not stop.is_set():
        began = time.monotonic()
        error = await _run_kopf(operator, stop)
        if stop.is_set():
            break
        if time.monotonic() - began > KOPF_STEADY_SECONDS:
            waits = itertools.chain(KOPF_WAITS, itertools.repeat(KOPF_WAITS[-1]))
        wait = next(waits)
        operator.metrics.failed("watch")
        log.warning("the watches have ended: %r; they begin anew in %.0f s", error, wait)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)
    raise _Stopped


async def _run_kopf(operator: Operator, stop: asyncio.Event) -> Exception | None:
    """Run kopf until ``stop``, or until it ends by itself: the error that it ended with."""
    namespaces = operator.config.watch_namespaces
    try:
        tasks = await kopf.spawn_tasks(
            registry=handlers.register(operator),
            settings=handlers.settings_of(operator),
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
        # kopf has put its own handlers in their place, which would end kopf but nothing else.
        _stop_on_signals(stop)
        await kopf.run_tasks(tasks, ignored=_Everything())
    except Exception as error:  # noqa: BLE001 - whatever it is, there have to be watches
        return error
    return None


class _Everything(frozenset[Any]):
    """Contains all tasks: kopf would cancel those that it does not know, and they are ours."""

    def __contains__(self, _: object) -> bool:
        return True


def _stop_on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def progress_server(operator: Operator, address: str) -> ProgressServer:
    """The progress endpoint, wired to the operator's store and client."""
    config = operator.config

    def trust(pem: str) -> None:
        operator.progress = ProgressTarget(address, pem)

    host, _, port = config.progress_listen.rpartition(":")
    server = ProgressServer(
        ProgressConfig(
            address=address,
            namespace=config.namespace,
            listen_host=host.strip("[]"),
            listen_port=int(port),
            interval_seconds=config.progress_status_interval_seconds,
            certificate_seconds=config.progress_certificate_seconds,
        ),
        operator.store,
        operator.client,
        on_outcome=operator.metrics.reported,
        on_applied=operator.store.put_job,
        on_trust=trust,
    )
    operator.store.heard = server.heard
    return server


if __name__ == "__main__":
    main()
