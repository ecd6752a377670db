"""Container images as layers in the cache, and reproducible tar files of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_EPOCH_SECONDS = 315532800
"""1980-01-01, the earliest time that every archive format can say."""

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's architecture as image configurations call it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True)
class Layer:
    """An uncompressed layer in the cache."""

    path: Path
    digest: str
    """SHA-256 in hexadecimal, of the uncompressed tar."""


@dataclass(frozen=True)
class Image:
    """An image that can be written as an archive for `ctr`, Docker or kind."""

    name: str
    """With tag, without registry: the reader adds whatever it adds to such names."""
    layers: tuple[Layer, ...]
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    base: Image | None = None
    """The image below the last layer, if it is worth keeping unpacked by itself."""

    @property
    def config(self) -> bytes:
        """The image's configuration, whose digest is the image's identity."""
        value = {
            "architecture": architecture(),
            "os": "linux",
            "created": "1980-01-01T00:00:00Z",
            "config": {
                "Cmd": list(self.command),
                "Env": [f"{k}={v}" for k, v in sorted(self.environment.items())],
                "WorkingDir": self.working_dir,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{x.digest}" for x in self.layers]},
            "history": [{"created": "1980-01-01T00:00:00Z"} for _ in self.layers],
        }
        return _json(value)

    @property
    def digest(self) -> str:
        """SHA-256 of the configuration in hexadecimal."""
        return hashlib.sha256(self.config).hexdigest()

    def write_update(self, stream: IO[bytes], registry: str) -> None:
        """Write an archive without the layers of `base`, for a store which has those.

        In this format (OCI) the name is taken as it is, so `registry` is what the store puts
        before names without one.
        """
        layers = [_descriptor(_LAYER, x.digest, x.path.stat().st_size) for x in self.layers]
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, self.digest, len(self.config)),
                "layers": layers,
            }
        )
        digest = hashlib.sha256(manifest).hexdigest()
        top = _descriptor(_MANIFEST, digest, len(manifest))
        top["annotations"] = {"io.containerd.image.name": registry + self.name}
        with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as tar:
            _add_bytes(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add_layer(tar, f"blobs/sha256/{self.layers[-1].digest}", self.layers[-1])
            _add_bytes(tar, f"blobs/sha256/{self.digest}", self.config)
            _add_bytes(tar, f"blobs/sha256/{digest}", manifest)
            _add_bytes(tar, "index.json", _json({"schemaVersion": 2, "manifests": [top]}))

    def write_archive(self, stream: IO[bytes]) -> None:
        """Write the archive as `docker save` would."""
        manifest = {
            "Config": f"{self.digest}.json",
            "RepoTags": [self.name],
            "Layers": [f"{layer.digest}/layer.tar" for layer in self.layers],
        }
        with tarfile.open(fileobj=stream, mode="w|", bufsize=1 << 20) as tar:
            _add_bytes(tar, f"{self.digest}.json", self.config)
            for layer in self.layers:
                _add_layer(tar, f"{layer.digest}/layer.tar", layer)
            _add_bytes(tar, "manifest.json", _json([manifest]))


def _file_info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, _EPOCH_SECONDS, 0o644
    return info


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_file_info(name, len(content)), io.BytesIO(content))


def _add_layer(tar: tarfile.TarFile, name: str, layer: Layer) -> None:
    with layer.path.open("rb") as content:
        tar.addfile(_file_info(name, layer.path.stat().st_size), content)


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


class LayerCache:
    """Layers by what went into them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, inputs: object, make: Callable[[Path], None]) -> Layer:
        """The layer made from these inputs (JSON values), made now if it is not there yet.

        `make` writes the tar to the path that it is given.
        """
        text = json.dumps([architecture(), inputs], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        target, note = self._folder / f"{key}.tar", self._folder / f"{key}.sha256"
        if not note.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = self._folder / f"{key}.{os.getpid()}"
            try:
                make(partial)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            # Written last: it says that the layer is whole.
            with target.open("rb") as content:
                note.write_text(hashlib.file_digest(content, "sha256").hexdigest())
        return Layer(target, note.read_text())


def write_layer(
    target: Path, root: Path, below: str = "", keep: Callable[[str], bool] = lambda _: True
) -> None:
    """Write a folder's content (or what is below a path of it) as a layer.

    The same content gives the same bytes: sorted, one time for all, no names of users. Files
    below /dev and sockets are left out, as every runtime brings its own; `keep` is asked with
    each path relative to the root.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for parent in reversed(Path(below).parents if below else ()):
            if parent != Path():
                _add(tar, root, str(parent))
        for name in _walk(root, below):
            if keep(name):
                _add(tar, root, name)


def _walk(root: Path, below: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root / below):
        folders.sort()
        relative = os.path.relpath(folder, root)
        if relative == "dev":
            folders.clear()
            files = []
        if relative != ".":
            yield relative
        links = [d for d in folders if (Path(folder) / d).is_symlink()]
        for name in sorted([*files, *links]):
            yield os.path.normpath(f"{relative}/{name}")


def _add(tar: tarfile.TarFile, root: Path, name: str) -> None:
    path = root / name
    if stat.S_ISSOCK(path.lstat().st_mode):
        return
    info: Any = tar.gettarinfo(str(path), arcname=name)
    info.mtime, info.uname, info.gname = _EPOCH_SECONDS, "", ""
    if info.isreg():
        with path.open("rb") as content:
            tar.addfile(info, content)
    else:
        tar.addfile(info)
