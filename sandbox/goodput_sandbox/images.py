"""The images that real nodes run, built on this machine; there is no registry.

What changes least is the lowest layer: Debian with Python, then the packages of an example, then
its code. Each layer is made again only when what goes into it has changed.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from . import images_rootfs
from .images_archive import Image, Layer, LayerCache, write_layer
from .images_rootfs import Source
from .options import REPOSITORY, SandboxError, cache_root
from .state import locked

Say = Callable[[str], None]

PAUSE = "goodput-sandbox/pause:0.1.0"
PYTHON = "goodput-sandbox/python:0.1.0"
DIGITS = "goodput-examples/digits:0.1.0"
_DIGITS_BASE = "goodput-sandbox/digits-packages:0.1.0"

_EXAMPLE = REPOSITORY / "examples" / "digits"
_APPLICATION = (
    _EXAMPLE / "train.py",
    REPOSITORY / "operator" / "goodput_operator" / "worker" / "goodput_worker.py",
)
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONUNBUFFERED": "1",
    "LANG": "C.UTF-8",
}
_SLEEP = ("sleep", "infinity")


def ensure(names: Iterable[str], say: Say) -> tuple[Image, ...]:
    """These images, built as far as they are not in the cache yet.

    Raises SandboxError saying which step failed.
    """
    names = tuple(names)
    recipes = {PAUSE: pause, PYTHON: python, DIGITS: digits}
    unknown = set(names) - recipes.keys()
    if unknown:
        raise SandboxError(f"unknown images {sorted(unknown)}; there are {sorted(recipes)}")
    with locked(cache_root() / "images" / "lock"):
        return tuple(recipes[name](say) for name in names)


def pause(say: Say) -> Image:
    """What holds a pod's namespaces."""
    base = _base(say)

    def make(target: Path) -> None:
        with _unpacked(base) as root, tempfile.TemporaryDirectory() as name:
            binary = Path(name) / "pause"
            shutil.copy(root / images_rootfs.PAUSE_BINARY, binary)
            write_layer(target, Path(name))

    layer = _cache().get(["pause", base.digest], make)
    return Image(PAUSE, (layer,), images_rootfs.PAUSE_COMMAND)


def python(say: Say) -> Image:
    """Debian with Python and nothing else, for tests that bring their program along."""
    return Image(PYTHON, (_base(say),), _SLEEP, _ENVIRONMENT)


def digits(say: Say) -> Image:
    """The training example: JAX, its data, the program and the worker library."""
    base = _base(say)
    requirements = _EXAMPLE / "requirements.txt"

    def packages(target: Path) -> None:
        with _step("Python packages of the example", say), _unpacked(base) as root:
            folder = images_rootfs.install_packages(root, requirements)
            write_layer(target, root, folder, images_rootfs.wanted_package_file)

    def application(target: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            app = Path(name) / "app"
            app.mkdir()
            for file in _APPLICATION:
                shutil.copyfile(file, app / file.name)
                (app / file.name).chmod(0o644)
            app.chmod(0o755)
            write_layer(target, Path(name))

    recipe = images_rootfs.PACKAGES_RECIPE
    middle = _cache().get([recipe, base.digest, requirements.read_text()], packages)
    top = _cache().get(["application", *(f.read_text() for f in _APPLICATION)], application)
    below = Image(_DIGITS_BASE, (base, middle), _SLEEP, _ENVIRONMENT)
    command = ("python3", "/app/train.py")
    return Image(DIGITS, (base, middle, top), command, _ENVIRONMENT, "/app", below)


def _cache() -> LayerCache:
    return LayerCache(cache_root() / "images" / "layers")


def _base(say: Say) -> Layer:
    source = Source.of_this_machine()

    def make(target: Path) -> None:
        with _step(f"Debian {source.suite} with Python", say), _scratch() as root:
            images_rootfs.bootstrap(root, source)
            write_layer(target, root, keep=images_rootfs.wanted_base_file)

    return _cache().get([images_rootfs.BASE_RECIPE, source.suite], make)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder in the cache, as /tmp may be small or forbid device files."""
    folder = cache_root() / "images" / "scratch"
    # We hold the lock: what is there was left by a run that was killed.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name) / "root"
        root.mkdir(mode=0o755)
        yield root


@contextlib.contextmanager
def _unpacked(layer: Layer) -> Iterator[Path]:
    with _scratch() as root:
        shutil.unpack_archive(layer.path, root, "tar", filter="fully_trusted")
        yield root


@contextlib.contextmanager
def _step(what: str, say: Say) -> Iterator[None]:
    say(f"making {what} …")
    began = time.monotonic()
    yield
    say(f"made {what} in {time.monotonic() - began:.0f} s")


def main() -> None:
    """Build every image ahead of time."""

    def say(message: str) -> None:
        print(f"sandbox: {message}", file=sys.stderr, flush=True)

    for image in ensure((PAUSE, PYTHON, DIGITS), say):
        size = sum(layer.path.stat().st_size for layer in image.layers)
        print(f"{image.name}  {size / 1e6:.0f} MB  {image.digest[:12]}")


if __name__ == "__main__":
    main()
