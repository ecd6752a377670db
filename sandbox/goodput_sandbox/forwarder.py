"""A way from the host's loopback into the sandbox's network namespace."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .processes import environment, start

if TYPE_CHECKING:
    from .sandbox import Sandbox


def ensure(sandbox: Sandbox, port: int, address: str = "127.0.0.1") -> int:
    """The host port that leads to `address:port` inside; a forwarder is started if needed."""
    if not sandbox.rooted:
        return port
    name = f"forward-{address}-{port}"
    known = sandbox.state.get("forwards", {})
    if name in known and sandbox.processes.alive(name):
        return int(known[name])
    # Bound here and handed over, so that the port is known and open at once.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        host_port: int = listener.getsockname()[1]
        # Alone and without site-packages: small, and there within milliseconds.
        argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("tunnel.py"))]
        argv += ["--listen-fd", str(listener.fileno()), "--netns", str(sandbox.netns)]
        argv += ["--address", address, "--port", str(port)]
        identity = start(argv, sandbox.log(name), environment(sandbox.state_dir))
        sandbox.record(name, identity, argv)
    sandbox.remember(forwards={**known, name: host_port})
    return host_port
