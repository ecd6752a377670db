"""The sandbox as tests and the command line see it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import build, cleanup, controlplane, dns, forwarder, kubeconfig, kueue, lifecycle, netns
from .options import (
    BRIDGE_ADDRESS,
    Ports,
    SandboxError,
    SandboxOptions,
    checked_name,
    is_root,
    sandboxes_root,
)
from .processes import ProcessId, environment, start
from .simulated import SimulatedNodes
from .state import Entry, ProcessTable, locked, read_json, write_json

OPERATOR_NAMESPACE = "goodput-system"
OPERATOR_ACCOUNT = "goodput-operator"


class Sandbox:
    """One cluster on this machine, found again by its name from any process.

    Everything it starts carries its state folder in the environment, so that `down` finds it
    even if whoever started it was killed between starting and writing it down.
    """

    def __init__(self, name: str = "demo") -> None:
        self.name = checked_name(name)
        self.state_dir = sandboxes_root() / self.name
        self.processes = ProcessTable(self.state_dir / "processes.json")

    # -- what it is ----------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """What `up` wrote down: phase, options, owner, forwarded ports."""
        value: dict[str, Any] = read_json(self.state_dir / "state.json", {})
        return value

    def remember(self, **values: Any) -> None:
        """Add to what is written down."""
        with locked(self.state_dir / "state.lock"):
            write_json(self.state_dir / "state.json", {**self.state, **values})

    @property
    def rooted(self) -> bool:
        """Whether it has a network namespace of its own, and so can have real nodes."""
        return bool(self.state.get("rooted", is_root()))

    @property
    def scope(self) -> str:
        """Prefix of everything global that is made for it: namespaces, links, cgroups.

        Names are `SCOPE` itself or begin with `SCOPE-`; `down` removes all of them.
        """
        return f"gp-{self.name}"

    @property
    def ports(self) -> Ports:
        """Where the components listen, inside."""
        return Ports(**self.state.get("ports", {}))

    @property
    def netns(self) -> Path:
        """The network namespace of control plane and operator."""
        return netns.path(self.scope)

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig for use from the host."""
        return self.state_dir / "kubeconfig"

    @property
    def inside_kubeconfig(self) -> Path:
        """Administrator's kubeconfig for use inside the network namespaces."""
        return self.state_dir / "kubeconfig.inside"

    @property
    def inside_address(self) -> str:
        """Where the control plane listens, as seen by nodes and pods."""
        return BRIDGE_ADDRESS if self.rooted else "127.0.0.1"

    @property
    def logs_dir(self) -> Path:
        """Logs of the processes started by `spawn`."""
        return self.state_dir / "logs"

    @property
    def pki_dir(self) -> Path:
        """Holds `ca.crt`, `ca.key`, `admin.crt`, `admin.key` of the cluster."""
        return controlplane.cluster_dir(self.state_dir, self.name) / "pki"

    @property
    def binaries(self) -> Path:
        """Folder of the built binaries (kubelet, kubectl, …)."""
        return build.binaries_dir()

    @property
    def is_up(self) -> bool:
        """Whether `up` finished and the API server's process is alive."""
        return self.state.get("phase") == "up" and self.processes.alive("kube-apiserver")

    # -- life ----------------------------------------------------------------------------

    def up(self, options: SandboxOptions | None = None, owner_pid: int | None = None) -> None:
        """Build what is missing and start everything; a running one like it is kept.

        With `owner_pid`, a watchdog takes the sandbox down once that process has gone, even
        by SIGKILL.

        Raises SandboxError with the reason; nothing is left behind then.
        """
        lifecycle.up(self, options or SandboxOptions(), owner_pid)

    def down(self) -> None:
        """Stop everything and remove every trace; harmless if there is nothing."""
        lifecycle.down(self)

    # -- processes -----------------------------------------------------------------------

    def in_netns(self, argv: list[str]) -> list[str]:
        """The command line that runs `argv` inside the sandbox's network namespace."""
        return [*netns.enter(self.netns), *argv] if self.rooted else list(argv)

    def spawn(
        self,
        name: str,
        argv: list[str],
        env: Mapping[str, str] | None = None,
        *,
        inside: bool = True,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> int:
        """Start a process that `down` stops; its output goes to `logs/NAME.log`.

        `inside=False` starts it in the caller's network namespace instead.
        """
        if self.processes.alive(name):
            raise SandboxError(f"{name} is already running in sandbox {self.name}")
        command = self.in_netns(argv) if inside else list(argv)
        identity = start(command, self.log(name), environment(self.state_dir, env))
        self.record(name, identity, argv, stop_signal)
        return identity.pid

    def record(
        self,
        name: str,
        identity: ProcessId,
        argv: list[str],
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Write down a process that something else started, so that `down` stops it."""
        self.processes.add(
            Entry(name, identity.pid, identity.start_time_ticks, argv, int(stop_signal))
        )

    def log(self, name: str) -> Path:
        """The log file of a process."""
        if name in controlplane.COMPONENTS:
            return controlplane.log_file(self.state_dir, self.name, name)
        return self.logs_dir / f"{name}.log"

    def stop_process(self, name: str, kill: bool = False) -> None:
        """End one process, by SIGTERM (then SIGKILL after 3 s) or at once."""
        self.processes.stop(name, kill)

    def restart_process(self, name: str) -> int:
        """Start a stopped control plane component, or Kueue, again as it was."""
        if name in controlplane.COMPONENTS:
            return controlplane.restart(self, name)
        if name == kueue.PROCESS:
            return kueue.start(self)
        if name == dns.PROCESS:
            return dns.start(self)
        raise SandboxError(f"don't know how to start {name}; use spawn")

    def freeze(self, name: str) -> None:
        """Stop a process in its tracks: its sockets stay open, nothing answers."""
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen process run on."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        entry = self.processes.get(name)
        if entry is None or not entry.identity.send(number):
            raise SandboxError(f"{name} is not running in sandbox {self.name}")

    # -- access --------------------------------------------------------------------------

    def forward(self, port: int, address: str = "127.0.0.1") -> int:
        """A port on the host's 127.0.0.1 that leads to `address:port` inside."""
        return forwarder.ensure(self, port, address)

    def operator_kubeconfig(self, inside: bool = True) -> Path:
        """Kubeconfig of the operator's service account, so that it runs under its real RBAC.

        For use inside the namespace (where `spawn` runs things), or from the host.
        """
        return self.account_kubeconfig(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT, inside=inside)

    def account_kubeconfig(self, namespace: str, account: str, inside: bool = True) -> Path:
        """Kubeconfig that authenticates as a service account, by a token of a year."""
        token = self.kubectl("create", "token", account, "-n", namespace, "--duration=8760h")
        where = "inside" if inside else "host"
        target = self.state_dir / "accounts" / f"{namespace}.{account}.{where}.kubeconfig"
        source = self.inside_kubeconfig if inside else self.kubeconfig
        kubeconfig.with_token(source, target, f"{namespace}-{account}", token.strip())
        return target

    def kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        timeout: float = 120,
    ) -> str:
        """Run kubectl as administrator from the host; returns its standard output.

        Raises SandboxError with what kubectl said.
        """
        argv = [str(self.binaries / "kubectl"), f"--kubeconfig={self.kubeconfig}", *args]
        done = subprocess.run(
            argv,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            # A person's own preferences for kubectl are not the test's.
            env=environment(self.state_dir, {"KUBERC": "off"}),
        )
        if done.returncode != 0:
            raise SandboxError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *manifests: Path) -> None:
        """Server-side apply of files or folders, as the installer would."""
        files = [f"--filename={m}" for m in manifests]
        self.kubectl(
            "apply", "--server-side", "--force-conflicts", "--field-manager=sandbox", *files
        )

    @property
    def simulated(self) -> SimulatedNodes:
        """Nodes that KWOK plays."""
        return SimulatedNodes(self)

    def add_simulated_nodes(self, count: int, **kwargs: Any) -> list[str]:
        """Add nodes that KWOK plays; see `SimulatedNodes.add`."""
        return self.simulated.add(count, **kwargs)

    # -- evidence ------------------------------------------------------------------------

    def collect_logs(self, folder: Path) -> None:
        """Copy every log, and dump the objects that tell what happened, into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        sources = [self.logs_dir, controlplane.cluster_dir(self.state_dir, self.name) / "logs"]
        for log in (f for s in sources if s.is_dir() for f in s.glob("*.log")):
            shutil.copy(log, folder / log.name)
        write_json(folder / "state.json", self.state)
        kinds = ("nodes", "pods", "workloads.kueue.x-k8s.io", "trainingjobs.goodput.dev", "events")
        for kind in kinds:
            try:
                text = self.kubectl("get", "-A", "-o", "yaml", kind, timeout=30)
            except (SandboxError, subprocess.TimeoutExpired) as error:
                text = f"# {error}\n"
            (folder / f"{kind.partition('.')[0]}.yaml").write_text(text)

    def wait_until(
        self, check: Callable[[], bool], seconds: float, what: str, process: str
    ) -> None:
        """Wait for a process of ours to serve; its log's last lines tell if it doesn't."""
        deadline = time.monotonic() + seconds
        while not check():
            dead = not self.processes.alive(process)
            if dead or time.monotonic() > deadline:
                tail = cleanup.tail(self.log(process), 15)
                state = "has ended" if dead else f"took over {seconds:.0f} s"
                raise SandboxError(f"{what}: {process} {state}; {self.log(process)}:\n{tail}")
            time.sleep(0.05)
