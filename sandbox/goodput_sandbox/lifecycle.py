"""Bringing a sandbox up and down, whatever interrupts it."""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from . import build, cleanup, controlplane, dns, kueue, netns, requirements
from .options import (
    REPOSITORY,
    Ports,
    SandboxError,
    SandboxOptions,
    cache_root,
    is_root,
    sandboxes_root,
)
from .processes import ProcessId, environment, identify, module_environment, start
from .state import locked

if TYPE_CHECKING:
    from .sandbox import Sandbox

WATCHDOG = "watchdog"


def say(message: str) -> None:
    """Tell the person at the terminal how far we are."""
    print(f"sandbox: {message}", file=sys.stderr, flush=True)


def up(sandbox: Sandbox, options: SandboxOptions, owner_pid: int | None) -> None:
    """Start everything, or keep what runs if it was started with the same options."""
    with _alone(sandbox), _stoppable():
        _sweep_orphans(except_for=sandbox.name)
        if sandbox.is_up and sandbox.state.get("options") == _plain(options):
            _watch(sandbox, owner_pid)
            return
        _remove(sandbox, "cleaning up what an earlier run left")
        try:
            _start(sandbox, options, owner_pid)
        except BaseException:
            with _uninterrupted():
                _remove(sandbox, "start failed, cleaning up")
            raise


def down(sandbox: Sandbox) -> None:
    """Stop everything and remove every trace."""
    with _alone(sandbox), _uninterrupted():
        _remove(sandbox)


def _plain(options: SandboxOptions) -> object:
    return json.loads(json.dumps(options.as_dict()))


@contextlib.contextmanager
def _alone(sandbox: Sandbox) -> Iterator[None]:
    """One process at a time starts or stops a sandbox of a name."""
    with locked(cache_root() / "locks" / f"{sandbox.name}.lock"):
        yield


def _remove(sandbox: Sandbox, message: str | None = None) -> None:
    """Take down real nodes the proper way, then whatever is left of anything."""
    if not cleanup.leftovers(sandbox.state_dir, sandbox.scope):
        return
    if message:
        say(message)
    if nodes := _real_nodes(sandbox):
        try:
            nodes.remove_all()
        except (SandboxError, OSError, subprocess.SubprocessError) as error:
            say(f"real nodes: {error}; removing what is left of them")
    cleanup.sweep(sandbox.state_dir, sandbox.scope)
    left = cleanup.leftovers(sandbox.state_dir, sandbox.scope)
    if left:
        raise SandboxError("could not remove " + ", ".join(left))


def _real_nodes(sandbox: Sandbox) -> Any:
    """The real nodes of a sandbox; None where there can be none."""
    if not sandbox.rooted:
        return None
    try:
        module = importlib.import_module(f"{__package__}.nodes")
    except ModuleNotFoundError:
        return None
    return module.RealNodes(sandbox)


def _add_real_nodes(sandbox: Sandbox, count: int) -> None:
    nodes = _real_nodes(sandbox)
    if nodes is None:
        raise SandboxError("real nodes need root and goodput_sandbox.nodes")
    for number in range(count):
        nodes.add(f"real-{number}")


def _sweep_orphans(except_for: str) -> None:
    """Remove other sandboxes whose owner has gone (their watchdog was killed too)."""
    from .sandbox import Sandbox

    root = sandboxes_root()
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if not folder.is_dir() or folder.name == except_for:
            continue
        other = Sandbox(folder.name)
        owner = other.state.get("owner")
        if owner and not ProcessId(**owner).alive() and not other.processes.alive(WATCHDOG):
            say(f"removing sandbox {other.name}, whose owner has gone")
            down(other)


def _start(sandbox: Sandbox, options: SandboxOptions, owner_pid: int | None) -> None:
    rooted = is_root() and not options.rootless
    if rooted:
        requirements.ensure(say)
        if options.real_nodes:
            requirements.ensure(say, requirements.REAL_NODES)
    else:
        say("not root: simulated nodes only, no network namespace and no cluster DNS")
    build.ensure(say)
    began = time.monotonic()
    sandbox.logs_dir.mkdir(parents=True)
    ports = Ports() if rooted else _free_ports()
    sandbox.remember(phase="starting", rooted=rooted, options=_plain(options), ports=asdict(ports))
    _watch(sandbox, owner_pid)
    took = []
    for step, run in _steps(sandbox, options, rooted):
        since = time.monotonic()
        run()
        took.append(f"{step} {time.monotonic() - since:.1f} s")
    sandbox.remember(phase="up")
    say(f"{sandbox.name} is up after {time.monotonic() - began:.1f} s ({', '.join(took)})")


def _steps(
    sandbox: Sandbox, options: SandboxOptions, rooted: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What has to be done, in order. Kueue starts up while the rest goes on."""
    if rooted:
        yield "network", lambda: netns.create(sandbox.scope)
    yield "control plane", lambda: controlplane.start(sandbox, options)
    if options.kueue:
        yield "Kueue", lambda: kueue.install(sandbox, options)
    if rooted and options.dns:
        yield "DNS", lambda: dns.install(sandbox)
    if options.apply_repository:
        yield "manifests", lambda: _apply_repository(sandbox)
    if options.simulated_nodes:
        count = options.simulated_nodes
        yield "simulated nodes", lambda: sandbox.add_simulated_nodes(count)
    if options.real_nodes:
        yield "real nodes", lambda: _add_real_nodes(sandbox, options.real_nodes)
    if options.kueue:
        yield "Kueue ready", lambda: kueue.wait_ready(sandbox)


def _apply_repository(sandbox: Sandbox) -> None:
    """The operator's CRDs and rights, as far as the repository has them already."""
    folders = (REPOSITORY / "crds", REPOSITORY / "sandbox" / "manifests")
    files = [f for folder in folders for f in sorted(folder.glob("*.yaml"))]
    if files:
        sandbox.apply(*files)


def _free_ports() -> Ports:
    """Ports that nobody uses on 127.0.0.1, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in asdict(Ports())
        ]
        numbers = [s.getsockname()[1] for s in sockets]
    return Ports(**dict(zip(asdict(Ports()), numbers, strict=True)))


def _watch(sandbox: Sandbox, owner_pid: int | None) -> None:
    """Let a small process of its own take the sandbox down when its owner has gone."""
    if owner_pid is None:
        return
    owner = identify(owner_pid)
    if owner is None:
        raise SandboxError(f"the owner, process {owner_pid}, does not exist")
    sandbox.processes.stop(WATCHDOG)
    sandbox.remember(owner=asdict(owner))
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))]
    argv += [sandbox.name, str(owner.pid), str(owner.start_time_ticks)]
    env = environment(sandbox.state_dir, module_environment())
    sandbox.record(WATCHDOG, start(argv, sandbox.log(WATCHDOG), env), argv)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that what was started is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold signals back while cleaning up; a second Ctrl-C must not leave half of it."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
