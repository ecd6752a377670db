"""etcd, API server, controller manager, scheduler and KWOK, started by kwokctl."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from . import build, cleanup, kubeconfig, pki, stages
from .options import SERVICE_RANGE, SandboxError, SandboxOptions
from .processes import environment, identify
from .processes import start as start_process

if TYPE_CHECKING:
    from .sandbox import Sandbox

COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
)
FAKE_NODE = ("kwok.x-k8s.io/node", "fake")
"""The annotation of nodes that KWOK plays; it leaves all others, and their pods, alone."""


def cluster_dir(state_dir: Path, name: str) -> Path:
    """Where kwokctl keeps the cluster."""
    return state_dir / "kwok" / "clusters" / name


def log_file(state_dir: Path, name: str, component: str) -> Path:
    """Log of a component."""
    return cluster_dir(state_dir, name) / "logs" / f"{component}.log"


def start(sandbox: Sandbox, options: SandboxOptions) -> None:
    """Start the control plane and wait until it serves."""
    configuration = sandbox.state_dir / "kwokctl.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(sandbox, options)))
    pki.create(sandbox.pki_dir, tuple({"127.0.0.1", sandbox.inside_address}))
    settings = {
        # kwokctl waits with kubectl, and would download one that it doesn't find.
        "PATH": os.pathsep.join((str(sandbox.binaries), os.environ["PATH"])),
        "KWOK_WORKDIR": str(sandbox.state_dir / "kwok"),
        "KWOK_KUBE_VERSION": build.kubernetes_version(),
    }
    try:
        done = subprocess.run(
            sandbox.in_netns(_command(sandbox, configuration)),
            env=environment(sandbox.state_dir, settings),
            capture_output=True,
            text=True,
            timeout=180,
        )
    finally:
        _record(sandbox)
    if done.returncode != 0:
        raise SandboxError(f"kwokctl: {done.stderr.strip()[-600:]}\n{_last_words(sandbox)}")
    _check_flags(sandbox, options)
    _write_kubeconfigs(sandbox)
    _wait_ready(sandbox)
    stages.apply(sandbox)


def _configuration(sandbox: Sandbox, options: SandboxOptions) -> dict[str, Any]:
    """kwokctl's configuration; its `--extra-args` can't take a value with `=` in it.

    The arguments are appended, not overriding: an override of a flag that kwokctl does not set
    itself is dropped, and of a flag given twice the last one counts.
    """
    patches = [
        {
            "name": component,
            "extraArgs": [{"key": k, "value": str(v)} for k, v in values.items()],
        }
        for component, values in _extra_arguments(sandbox, options).items()
    ]
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "bindAddress": "0.0.0.0" if sandbox.rooted else "127.0.0.1",
            "etcdPeerPort": sandbox.ports.etcd_peer,
        },
        "componentsPatches": patches,
    }


def _command(sandbox: Sandbox, configuration: Path) -> list[str]:
    bin_dir, ports = sandbox.binaries, sandbox.ports
    command = [str(bin_dir / "kwokctl"), f"--name={sandbox.name}", f"--config={configuration}"]
    command += ["create", "cluster", "--runtime=binary", "--quiet-pull", "--timeout=60s"]
    command += [f"--kubeconfig={sandbox.state_dir / 'kwokctl.kubeconfig'}"]
    command += [f"--{c}-binary={bin_dir / c}" for c in COMPONENTS if c != "kwok-controller"]
    command += [f"--kwok-controller-binary={bin_dir / 'kwok'}"]
    return [
        *command,
        f"--etcd-port={ports.etcd}",
        f"--kube-apiserver-port={ports.apiserver}",
        f"--kube-controller-manager-port={ports.controller_manager}",
        f"--kube-scheduler-port={ports.scheduler}",
        f"--controller-port={ports.kwok}",
        "--disable-qps-limits",
        "--enable-crds=Stage",
    ]


def _extra_arguments(sandbox: Sandbox, options: SandboxOptions) -> dict[str, Mapping[str, object]]:
    """Flags on top of kwokctl's, by component."""
    admin = sandbox.pki_dir / "admin"
    grace = options.node_monitor_grace_seconds
    # Without a default route nothing can be advertised by itself; without root the address
    # must not be loopback and is used by nobody.
    advertised = sandbox.inside_address if sandbox.rooted else "192.0.2.1"
    apiserver = {
        "advertise-address": advertised,
        "service-cluster-ip-range": SERVICE_RANGE,
        "kubelet-client-certificate": f"{admin}.crt",
        "kubelet-client-key": f"{admin}.key",
        "kubelet-preferred-address-types": "InternalIP",
    }
    # One of each: nobody to elect, and a frozen API server must not make them give up and exit.
    alone = {"leader-elect": "false"}
    manager = {**alone, "node-monitor-period": "1s", "node-monitor-grace-period": f"{grace}s"}
    kwok = {
        "manage-all-nodes": "false",
        "manage-nodes-with-annotation-selector": "=".join(FAKE_NODE),
        # Renewed at a quarter of this, so well within the grace period.
        "node-lease-duration-seconds": grace,
    }
    return {
        "kube-apiserver": apiserver,
        "kube-controller-manager": manager,
        "kube-scheduler": alone,
        "kwok-controller": kwok,
    }


def _last_words(sandbox: Sandbox) -> str:
    """The end of every component's log."""
    logs = [(c, log_file(sandbox.state_dir, sandbox.name, c)) for c in COMPONENTS]
    return "\n".join(f"{c}:\n{cleanup.tail(log, 5)}" for c, log in logs)


def _record(sandbox: Sandbox) -> None:
    """Take kwokctl's processes into our own table."""
    commands = {}
    pids = cluster_dir(sandbox.state_dir, sandbox.name) / "pids"
    for file in sorted(pids.glob("*.pid")):
        pid = int(file.read_text())
        if identity := identify(pid):
            # Nothing of theirs is kept, and the API server takes its time over SIGTERM.
            commands[file.stem] = arguments(pid)
            sandbox.record(file.stem, identity, commands[file.stem], signal.SIGKILL)
    sandbox.remember(components=commands)


def arguments(pid: int) -> list[str]:
    """The command line of a running process."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def _check_flags(sandbox: Sandbox, options: SandboxOptions) -> None:
    """Make sure on the process itself that the shorter time-outs took: the last flag wins."""
    entry = sandbox.processes.get("kube-controller-manager")
    given = [] if entry is None else arguments(entry.pid)
    prefix = "--node-monitor-grace-period="
    values = [a.removeprefix(prefix) for a in given if a.startswith(prefix)]
    wanted = f"{options.node_monitor_grace_seconds}s"
    if not values or values[-1] != wanted:
        raise SandboxError(f"kube-controller-manager runs with {values}, not {wanted}")


def _write_kubeconfigs(sandbox: Sandbox) -> None:
    folder, port = sandbox.pki_dir, sandbox.ports.apiserver
    outside = f"https://127.0.0.1:{sandbox.forward(port)}"
    inside = f"https://{sandbox.inside_address}:{port}"
    for target, server in ((sandbox.kubeconfig, outside), (sandbox.inside_kubeconfig, inside)):
        kubeconfig.with_certificate(
            target,
            server,
            folder / "ca.crt",
            sandbox.name,
            folder / "admin.crt",
            folder / "admin.key",
        )


def _wait_ready(sandbox: Sandbox, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            sandbox.kubectl("get", "--raw=/readyz", timeout=10)
            sandbox.kubectl("get", "namespace", "default", timeout=10)
            return
        except (SandboxError, subprocess.TimeoutExpired) as error:
            if time.monotonic() > deadline:
                raise SandboxError(f"the API server is not ready: {error}") from error
            time.sleep(0.1)


def restart(sandbox: Sandbox, component: str) -> int:
    """Start a stopped component with the arguments it had."""
    argv = sandbox.state.get("components", {}).get(component)
    if not argv:
        raise SandboxError(f"{component} was never started in sandbox {sandbox.name}")
    if sandbox.processes.alive(component):
        raise SandboxError(f"{component} is still running in sandbox {sandbox.name}")
    log = log_file(sandbox.state_dir, sandbox.name, component)
    plays_nodes = component == "kwok-controller"
    if plays_nodes:
        stages.withdraw_pods(sandbox)
        log.rename(log.with_suffix(".before.log"))
    command = sandbox.in_netns(argv)
    identity = start_process(command, log, environment(sandbox.state_dir))
    sandbox.record(component, identity, argv, signal.SIGKILL)
    if plays_nodes:
        stages.apply(sandbox)
    return identity.pid
