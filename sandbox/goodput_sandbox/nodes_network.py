"""A real node's network namespace, and the wire that ties it to the sandbox's bridge.

The node's own bridge and that of the sandbox are one link layer, so nodes and pods reach each
other and the control plane without a route. Hardware addresses of bridges are fixed: one that
follows its ports would change whenever a pod or a node comes, under everybody's ARP caches.
"""

from __future__ import annotations

import subprocess

from . import netns
from .nodes_config import NODE_BRIDGE, NodeSpec
from .options import BRIDGE, BRIDGE_ADDRESS, BRIDGE_PREFIX

_PORT = "eth0"


def _hardware_address(index: int) -> str:
    """A locally administered address; 0 is the sandbox's bridge."""
    return f"0a:4d:00:00:{index:02x}:01"


def _wire(spec: NodeSpec) -> str:
    """Name of the wire's end in the sandbox's namespace."""
    return f"node{spec.index}"


def create(scope: str, spec: NodeSpec) -> str:
    """Make the node's namespace, connected; returns its name."""
    name = f"{scope}-{spec.name}"
    netns.run("ip", "netns", "add", name)
    outside, inside = ["ip", "-n", scope], ["ip", "-n", name]
    netns.run(*outside, "link", "set", BRIDGE, "address", _hardware_address(0))
    wire = _wire(spec)
    pair = ["type", "veth", "peer", "name", _PORT, "netns", name]
    netns.run(*outside, "link", "add", wire, *pair)
    netns.run(*outside, "link", "set", wire, "master", BRIDGE)
    own = ["address", _hardware_address(spec.index)]
    netns.run(*inside, "link", "add", NODE_BRIDGE, *own, "type", "bridge")
    netns.run(*inside, "addr", "add", f"{spec.address}/{BRIDGE_PREFIX}", "dev", NODE_BRIDGE)
    netns.run(*inside, "link", "set", _PORT, "master", NODE_BRIDGE)
    for link in ("lo", _PORT, NODE_BRIDGE):
        netns.run(*inside, "link", "set", link, "up")
    netns.run(*inside, "route", "add", "default", "via", BRIDGE_ADDRESS)
    connect(scope, spec)
    return name


def connect(scope: str, spec: NodeSpec) -> None:
    """Plug the wire in."""
    netns.run("ip", "-n", scope, "link", "set", _wire(spec), "up")


def disconnect(scope: str, spec: NodeSpec) -> None:
    """Pull the wire: connections are not closed, they fall silent."""
    netns.run("ip", "-n", scope, "link", "set", _wire(spec), "down")


def remove(name: str) -> None:
    """Delete a node's namespace, and its wire at once (the kernel takes its time)."""
    subprocess.run(["ip", "-n", name, "link", "del", _PORT], capture_output=True, check=False)
    netns.remove(name)
