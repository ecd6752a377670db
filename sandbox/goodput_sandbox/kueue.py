"""Kueue beside the API server: its chart's rights and webhooks, its binary as a process."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from . import build, pki
from .assets import KUEUE_NAMESPACE
from .options import SandboxError, SandboxOptions, is_root

if TYPE_CHECKING:
    from .sandbox import Sandbox

PROCESS = "kueue"
_ACCOUNT = "kueue-controller-manager"


def install(sandbox: Sandbox, options: SandboxOptions) -> None:
    """Apply what the chart installs and start the controller; `wait_ready` follows."""
    documents = list(yaml.safe_load_all((build.assets_dir() / "kueue.yaml").read_text()))
    config = next(d for d in documents if d["kind"] == "ConfigMap")
    folder = sandbox.state_dir / "kueue"
    etc = folder / "etc" / "kueue"
    for certs in (folder / "webhook", etc / "metrics" / "certs"):
        pki.issue(
            sandbox.pki_dir,
            certs / "tls.crt",
            certs / "tls.key",
            "kueue-webhook-service",
            addresses=("127.0.0.1",),
            names=("localhost", f"kueue-webhook-service.{KUEUE_NAMESPACE}.svc"),
        )
    settings = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    merged = configuration(settings, sandbox, options)
    (folder / "config.yaml").write_text(yaml.safe_dump(merged))
    _apply(sandbox, [d for d in documents if d["kind"] != "ConfigMap"])
    _wait_served(sandbox)
    start(sandbox)


def configuration(
    base: Mapping[str, Any], sandbox: Sandbox, options: SandboxOptions
) -> dict[str, Any]:
    """The chart's configuration file, with what running outside a pod needs."""
    ports = sandbox.ports
    ours: dict[str, Any] = {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.kueue_health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{ports.kueue_metrics}"},
        "webhook": {
            "host": "127.0.0.1",
            "port": ports.kueue_webhook,
            "certDir": str(sandbox.state_dir / "kueue" / "webhook"),
        },
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {
            "frameworks": list(options.kueue_integrations),
            "externalFrameworks": list(options.kueue_external_frameworks),
        },
    }
    return merge(merge(base, ours), options.kueue_config)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, maps merged, everything else replaced."""
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        both_maps = isinstance(value, Mapping) and isinstance(before, Mapping)
        result[key] = merge(before or {}, value) if both_maps else value
    return result


def _apply(sandbox: Sandbox, documents: list[dict[str, Any]]) -> None:
    """Apply the chart's objects; the account is needed before anything can run as it."""
    ca = (sandbox.pki_dir / "ca.crt").read_text()
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": KUEUE_NAMESPACE, "labels": {"control-plane": "controller-manager"}},
    }
    base = f"https://127.0.0.1:{sandbox.ports.kueue_webhook}"
    listed = [namespace] + [with_urls(d, base, ca) for d in documents]
    target = sandbox.state_dir / "kueue" / "manifests.json"
    target.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    sandbox.kubectl("create", "--validate=false", "-f", str(target))


def with_urls(node: Any, base: str, ca: str) -> Any:
    """The same object with every webhook's service turned into a URL on loopback."""
    if isinstance(node, list):
        return [with_urls(n, base, ca) for n in node]
    if not isinstance(node, dict):
        return node
    service = (node.get("clientConfig") or {}).get("service")
    if service is None:
        return {k: with_urls(v, base, ca) for k, v in node.items()}
    bundle = base64.b64encode(ca.encode()).decode()
    config = {"url": base + service.get("path", "/"), "caBundle": bundle}
    return {**node, "clientConfig": config}


def _wait_served(sandbox: Sandbox) -> None:
    """Wait until Kueue's kinds are served: it ends at once where one that it needs is not yet."""

    def served() -> bool:
        try:
            listed = json.loads(sandbox.kubectl("get", "--raw", "/apis/kueue.x-k8s.io/v1beta2"))
        except SandboxError:
            return False
        kinds = {each["kind"] for each in listed["resources"]}
        return {"Workload", "LocalQueue", "ClusterQueue", "ResourceFlavor"} <= kinds

    sandbox.wait_until(served, 60, "Kueue's kinds are not served", "kube-apiserver")


def start(sandbox: Sandbox) -> int:
    """Start the controller under its own service account, never as administrator."""
    folder = sandbox.state_dir / "kueue"
    account = sandbox.account_kubeconfig(KUEUE_NAMESPACE, _ACCOUNT)
    argv = [str(sandbox.binaries / "kueue"), f"--config={folder / 'config.yaml'}"]
    argv += ["--zap-log-level=2", "--feature-gates=VisibilityOnDemand=false"]
    env = {"POD_NAMESPACE": KUEUE_NAMESPACE, "KUBECONFIG": str(account)}
    return sandbox.spawn(PROCESS, _with_private_etc(sandbox, argv), env, stop_signal=signal.SIGKILL)


def _with_private_etc(sandbox: Sandbox, argv: list[str]) -> list[str]:
    """Run with an /etc of its own, as Kueue has the path of its metrics certificate built in.

    The mount lives in a mount namespace of this process and goes with it. Without root it
    takes a user namespace, which some distributions forbid.
    """
    etc = sandbox.state_dir / "kueue" / "etc"
    script = 'mount --bind "$0" /etc && exec "$@"'
    user = [] if is_root() else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "--", "sh", "-c", script, str(etc), *argv]


def wait_ready(sandbox: Sandbox) -> None:
    """Wait until an object passes the whole chain: API server, Kueue's webhook, back.

    Else the first objects of a test would be refused, as its webhooks fail closed.
    """
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "probe"},
    }
    probe = json.dumps(flavor)

    def accepted() -> bool:
        try:
            sandbox.kubectl("create", "--dry-run=server", "-f", "-", input=probe, timeout=10)
        except (SandboxError, subprocess.TimeoutExpired):
            return False
        return True

    sandbox.wait_until(accepted, 60, "Kueue's webhooks do not answer", PROCESS)


def config_file(sandbox: Sandbox) -> Path:
    """Kueue's configuration; change it and restart the process to try another."""
    return sandbox.state_dir / "kueue" / "config.yaml"
