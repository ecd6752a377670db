"""The operator's process: settings, logs, servers, the worker and kopf's watches."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack

import kopf

from goodput_operator import __version__, handlers, logs
from goodput_operator.builders.progress import ProgressTarget
from goodput_operator.config import Config, ConfigError, load
from goodput_operator.kube.client import Client, connect
from goodput_operator.metrics import Metrics
from goodput_operator.progress.server import ProgressConfig, ProgressServer
from goodput_operator.runtime import health
from goodput_operator.runtime.operator import Operator

log = logging.getLogger("goodput_operator")

EXIT_CONFIG = 2
STOP_SECONDS = 8.0
"""Longest time to stop in; pods have 30 s by default."""


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
    if config.kubeconfig:
        os.environ["KUBECONFIG"] = config.kubeconfig  # kopf looks there.
    sys.exit(asyncio.run(run(config)))


async def run(config: Config) -> int:
    """Run until SIGTERM or SIGINT (0), or until a part fails for good (1)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async def connected(metrics: Metrics) -> Client:
        return await connect(config.kubeconfig, metrics, config.request_timeout_seconds)

    operator = Operator(config, connected)
    serving = asyncio.create_task(_serve(operator, stop), name="operator")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    if serving.done() and serving.exception() is not None:
        log.error("stopped by an error", exc_info=serving.exception())
        return 1
    serving.cancel()
    await asyncio.wait({serving}, timeout=STOP_SECONDS)
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
            operator.progress = ProgressTarget(operator.config.progress_address, server.ca_pem)
        async with asyncio.TaskGroup() as group:
            group.create_task(operator.work(version), name="work")
            group.create_task(
                kopf.operator(
                    registry=handlers.register(operator),
                    settings=handlers.settings_of(operator),
                    clusterwide=True,
                    stop_flag=stop,
                ),
                name="kopf",
            )


def progress_server(operator: Operator, address: str) -> ProgressServer:
    """The progress endpoint, wired to the operator's store and client."""
    config = operator.config
    host, _, port = config.progress_listen.rpartition(":")
    return ProgressServer(
        ProgressConfig(
            address=address,
            namespace=config.namespace,
            listen_host=host.strip("[]"),
            listen_port=int(port),
            interval_seconds=config.progress_status_interval_seconds,
        ),
        operator.store,
        operator.client,
        on_outcome=operator.metrics.reported,
        on_applied=operator.store.put_job,
    )


if __name__ == "__main__":
    main()
