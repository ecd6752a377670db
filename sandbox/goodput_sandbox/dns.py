"""CoreDNS as cluster DNS, so that pods on real nodes find each other by name."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .options import BRIDGE_ADDRESS, CLUSTER_DOMAIN, REPOSITORY

if TYPE_CHECKING:
    from .sandbox import Sandbox

PROCESS = "coredns"
_PORT = 53


def install(sandbox: Sandbox) -> None:
    """Apply its rights and start it; nothing is forwarded outside."""
    sandbox.apply(REPOSITORY / "sandbox" / "manifests" / "coredns-rbac.yaml")
    account = sandbox.account_kubeconfig("kube-system", "coredns")
    corefile = sandbox.state_dir / "coredns" / "Corefile"
    corefile.parent.mkdir(exist_ok=True)
    corefile.write_text(
        f"""{CLUSTER_DOMAIN}:{_PORT} in-addr.arpa:{_PORT} {{
    bind {BRIDGE_ADDRESS}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {account}
        ttl 5
    }}
}}
.:{_PORT} {{
    bind {BRIDGE_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    start(sandbox)
    sandbox.wait_until(lambda: _serving(sandbox), 30, "cluster DNS does not start", PROCESS)


def start(sandbox: Sandbox) -> int:
    """Start CoreDNS with the configuration of `install`."""
    corefile = sandbox.state_dir / "coredns" / "Corefile"
    argv = [str(sandbox.binaries / "coredns"), "-conf", str(corefile)]
    return sandbox.spawn(PROCESS, argv, stop_signal=signal.SIGKILL)


def _serving(sandbox: Sandbox) -> bool:
    """Whether it listens, which it does only once it has read the cluster's Services."""
    entry = sandbox.processes.get(PROCESS)
    if entry is None:
        return False
    address = int.from_bytes(socket.inet_aton(BRIDGE_ADDRESS), sys.byteorder)
    listening = f" {address:08X}:{_PORT:04X} "
    try:
        return listening in Path(f"/proc/{entry.pid}/net/tcp").read_text()
    except FileNotFoundError:
        return False
