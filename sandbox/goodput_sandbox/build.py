"""Building upstream's binaries from their Go modules, once per set of versions."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import assets, toolchain
from .options import REPOSITORY, SandboxError, cache_root
from .state import locked

MODULES = REPOSITORY / "sandbox" / "go"
_FLAGS = ("-trimpath", "-buildvcs=false")


@dataclass(frozen=True)
class Binary:
    """One command, and the module (folder below `sandbox/go`) that pins its version."""

    name: str
    module: str
    package: str
    is_kubernetes: bool = False


BINARIES = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Binary("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", True),
    Binary(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        True,
    ),
    Binary("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", True),
    Binary("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", True),
    Binary("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", True),
    Binary("kwok", "kubernetes", "sigs.k8s.io/kwok/cmd/kwok"),
    Binary("kwokctl", "kubernetes", "sigs.k8s.io/kwok/cmd/kwokctl"),
    Binary("kueue", "kubernetes", "sigs.k8s.io/kueue/cmd/kueue"),
    Binary("coredns", "kubernetes", "github.com/coredns/coredns"),
    Binary("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
)


@functools.cache
def binaries_dir() -> Path:
    """The folder of this set of versions; another set gets another folder."""
    digest = hashlib.sha256(repr((_FLAGS, BINARIES, assets.VERSION)).encode())
    for module in sorted({b.module for b in BINARIES}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / module / file).read_bytes())
    return cache_root() / "bin" / digest.hexdigest()[:16]


def assets_dir() -> Path:
    """Manifests taken from the modules: Kueue's rendered chart, KWOK's stages."""
    return binaries_dir() / "assets"


@functools.cache
def kubernetes_version() -> str:
    """The pinned version, such as v1.36.3."""
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (MODULES / "kubernetes/go.mod").read_text())
    if found is None:
        raise SandboxError("sandbox/go/kubernetes/go.mod does not require k8s.io/kubernetes")
    return found.group(1)


def ensure(say: Callable[[str], None]) -> Path:
    """Build what is missing; two processes never build at once. Returns the folder."""
    target = binaries_dir()
    if _complete(target):
        return target
    with locked(cache_root() / "build.lock"):
        missing = [b for b in BINARIES if not (target / b.name).exists()]
        needed = max(toolchain.needed_version(MODULES / b.module / "go.mod") for b in BINARIES)
        go = toolchain.find_go(needed, say)
        target.mkdir(parents=True, exist_ok=True)
        for number, binary in enumerate(missing, 1):
            _build(go, binary, target, f"{binary.name} ({number} of {len(missing)})", say)
        if not assets.complete(assets_dir()):
            assets.extract(target / "helm", functools.partial(_module_dir, go), assets_dir())
    return target


def _complete(target: Path) -> bool:
    return all((target / b.name).exists() for b in BINARIES) and assets.complete(assets_dir())


def _build(go: Path, binary: Binary, target: Path, label: str, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    say(f"building {label} …")
    # Renamed only when whole, so that a killed build leaves nothing that looks finished.
    partial = target / f".{binary.name}.{os.getpid()}"
    command = [str(go), "build", *_FLAGS, f"-ldflags={_linker_flags(binary)}"]
    command += ["-o", str(partial), binary.package]
    done = subprocess.run(
        command, cwd=MODULES / binary.module, env=_environment(), capture_output=True, text=True
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise SandboxError(f"building {binary.name} failed:\n{last}")
    partial.replace(target / binary.name)
    say(f"built {label} in {time.monotonic() - began:.0f} s")


def _linker_flags(binary: Binary) -> str:
    flags = ["-s", "-w"]
    if binary.is_kubernetes:
        version = kubernetes_version()
        major, minor, _ = version.removeprefix("v").split(".")
        where = "k8s.io/component-base/version"
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {where}.{k}={v}" for k, v in values.items()]
    return " ".join(flags)


def _environment() -> dict[str, str]:
    """The go we chose, not another one that it would fetch."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _module_dir(go: Path, module: str) -> Path:
    """Where Go keeps the source of a module of the kubernetes go.mod."""
    command = [str(go), "list", "-m", "-json", module]
    done = subprocess.run(
        command, cwd=MODULES / "kubernetes", env=_environment(), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SandboxError(f"go list -m {module}: {done.stderr.strip()}")
    return Path(json.loads(done.stdout)["Dir"])
