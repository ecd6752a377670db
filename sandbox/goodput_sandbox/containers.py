"""containerd: its configuration, and image stores that nodes share.

Images are imported and unpacked once, into a template store in the cache. A node's store begins
as a copy of the template's small databases with links to its layers, which nobody writes to, so
that a node more costs milliseconds and no disk.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .images_archive import Image
from .options import SandboxError, cache_root
from .processes import environment
from .state import locked

NAMESPACE = "k8s.io"
"""Where the kubelet's images and containers live within containerd."""

_CONTENT = "io.containerd.content.v1.content/blobs/sha256"
_SNAPSHOTTER = "io.containerd.snapshotter.v1.overlayfs"
_METADATA = "io.containerd.metadata.v1.bolt/meta.db"
_FORMAT = "2"
"""To be changed with the layout of the templates."""


@dataclass(frozen=True)
class CriConfig:
    """What containerd needs to know to serve a kubelet."""

    pause_image: str
    cni_plugins: Path
    cni_config: Path


def command(name: str) -> str:
    """Full path of a system command. Raises SandboxError if there is none."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise SandboxError(f"{name} is missing; install containerd, runc and util-linux")
    return found


def contained(argv: list[str]) -> list[str]:
    """Runs a command with mounts and processes of its own, all gone when this process ends."""
    return [
        *(command("setpriv"), "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private"),
        *("--pid", "--fork", "--kill-child", "--mount-proc", "--", *argv),
    ]


def write_config(
    target: Path, *, root: Path, state: Path, socket: Path, cri: CriConfig | None
) -> None:
    """Write a configuration that containerd 1.6 and later understand."""
    disabled = [f"io.containerd.snapshotter.v1.{s}" for s in ("aufs", "btrfs", "devmapper", "zfs")]
    disabled += [] if cri else ["io.containerd.grpc.v1.cri"]
    text = f"""version = 2
root = {_quoted(root)}
state = {_quoted(state)}
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = {_quoted(socket)}
[plugins."io.containerd.internal.v1.opt"]
  path = {_quoted(root / "opt")}
"""
    target.write_text(text + (_cri_text(cri) if cri else ""))


def _cri_text(cri: CriConfig) -> str:
    # Lowering the score for the out-of-memory killer may be refused, hence the first line.
    return f"""[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = {_quoted(cri.pause_image)}
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {_quoted(cri.cni_plugins)}
    conf_dir = {_quoted(cri.cni_config)}
"""


def _quoted(value: Path | str) -> str:
    return json.dumps(str(value))


def load(socket: Path, image: Image | Path) -> None:
    """Import an image, or an archive of images, into a running containerd."""
    if isinstance(image, Path):
        with image.open("rb") as archive:
            _import(socket, lambda stream: shutil.copyfileobj(archive, stream, 1 << 20))
    else:
        _import(socket, image.write_archive)


def _ctr(socket: Path, *arguments: str) -> list[str]:
    return [command("ctr"), f"--address={socket}", f"--namespace={NAMESPACE}", *arguments]


def _import(socket: Path, write: Callable[[IO[bytes]], object]) -> None:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            _ctr(socket, "images", "import", "-"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        with process:
            assert process.stdin is not None
            # If the reader ends early, its own message is the one that tells why.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                write(process.stdin)
        errors.seek(0)
        _check(process.returncode, errors.read())


def _registry(socket: Path, image: Image) -> str:
    """What containerd put before the image's name, since names need a registry."""
    argv = _ctr(socket, "images", "list", "--quiet")
    done = subprocess.run(argv, capture_output=True, text=True)
    for name in done.stdout.split():
        if name.endswith("/" + image.name):
            return name.removesuffix(image.name)
    raise SandboxError(f"{image.name} was not imported: {done.stdout} {done.stderr}")


def _check(code: int, errors: bytes) -> None:
    if code != 0:
        raise SandboxError(f"ctr images import: {errors.decode(errors='replace').strip()}")


def template(images: Sequence[Image], say: Callable[[str], None]) -> Path:
    """A store with these images, from the cache if there is one.

    The last layer of an image with a `base` is its application, which changes often: all else
    is kept in a template of its own, to which only those layers are added.
    """
    folder = cache_root() / "images" / "stores"
    with locked(folder / "lock"):
        below = _store(folder, [image.base or image for image in images], None, say)
        if not any(image.base for image in images):
            return below
        return _store(folder, [image for image in images if image.base], below, say)


def _store(
    folder: Path, images: Sequence[Image], below: Path | None, say: Callable[[str], None]
) -> Path:
    key = "\n".join([_FORMAT, str(below), *sorted(f"{i.name} {i.digest}" for i in images)])
    target = folder / hashlib.sha256(key.encode()).hexdigest()[:16]
    if target.is_dir():
        return target
    began = time.monotonic()
    partial = folder / f"{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    if below:
        clone(below, partial)
    with _daemon(partial) as socket:
        for image in images:
            if below and image.base:
                registry = _registry(socket, image.base)
                _import(socket, functools.partial(image.write_update, registry=registry))
            else:
                load(socket, image)
    for layer in (layer for image in images for layer in image.layers):
        # The very bytes that the cache holds already.
        blob = partial / _CONTENT / layer.digest
        blob.unlink(missing_ok=True)
        blob.symlink_to(layer.path)
    partial.rename(target)
    say(f"unpacked {', '.join(i.name for i in images)} in {time.monotonic() - began:.1f} s")
    return target


@contextlib.contextmanager
def _daemon(root: Path) -> Iterator[Path]:
    """A containerd for importing only; whatever ends this process, it ends with it."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="goodput-containerd-") as name:
        work = Path(name)
        socket, log = work / "containerd.sock", work / "log"
        write_config(work / "config.toml", root=root, state=work / "state", socket=socket, cri=None)
        argv = contained([command("containerd"), f"--config={work / 'config.toml'}"])
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, stdout=output, stderr=output, env=environment(work), start_new_session=True
            )
        try:
            _await_ready(process, socket, log)
            yield socket
        finally:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + 30
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            last = log.read_text(errors="replace").splitlines()[-10:]
            raise SandboxError("containerd does not start:\n" + "\n".join(last))
        time.sleep(0.02)


def clone(store: Path, target: Path) -> None:
    """Make a store with the same images as another that nobody changes any more."""
    for folder in (_CONTENT, f"{_SNAPSHOTTER}/snapshots"):
        (target / folder).mkdir(parents=True)
        for entry in (store / folder).iterdir():
            (target / folder / entry.name).symlink_to(entry.resolve())
    for database in (_METADATA, f"{_SNAPSHOTTER}/metadata.db"):
        (target / database).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(store / database, target / database)
