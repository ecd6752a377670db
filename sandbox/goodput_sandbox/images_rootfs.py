"""Root file systems: Debian by debootstrap, Python packages by pip, trimmed to what runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .containers import command, contained
from .options import SandboxError

_PACKAGES = ("python3", "catatonit")
PAUSE_BINARY = "usr/bin/catatonit"
PAUSE_COMMAND = ("/pause", "-P")

# To be raised with what the functions below make, so that caches notice.
BASE_RECIPE = ["base", 1, *_PACKAGES]
PACKAGES_RECIPE = ["packages", 1]

_APT = Path("/etc/apt")
_NOT_IN_BASE = re.compile(
    r"(usr/share/(doc|info|locale|man|lintian|bug)|var/cache|var/lib/apt/lists|var/log|tmp"
    r"|usr/lib/python3\.\d+/(test|idlelib|ensurepip|lib2to3/tests))/."
)
_NOT_IN_PACKAGES = re.compile(
    r"/dist-packages/((numpy|scipy|sklearn)/(.*/)?tests/|bin/|.*\.(pyi|pyx|pxd|c|cpp|h|hpp)$)"
)


@dataclass(frozen=True)
class Source:
    """A Debian archive that this machine is already configured to use."""

    suite: str
    mirror: str
    components: tuple[str, ...]

    @staticmethod
    def of_this_machine() -> Source:
        """Read from apt's sources. Raises SandboxError if none has this machine's release."""
        suite = os_release().get("VERSION_CODENAME", "")
        for mirror, suites, components in _apt_sources():
            if suite in suites:
                return Source(suite, mirror, components)
        raise SandboxError(f"no source in {_APT} has the release {suite!r}; this needs Debian")


def os_release() -> dict[str, str]:
    """What the distribution says about itself."""
    lines = Path("/etc/os-release").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value.strip('"') for key, _, value in pairs}


def _apt_sources() -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Address, suites and components of each source, in both of apt's formats."""
    found = []
    for file in sorted(_APT.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(re.findall(r"^(\w[\w-]*):[ \t]*(.*)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split() and fields.get("Enabled") != "no":
                values = (tuple(fields.get(k, "").split()) for k in ("Suites", "Components"))
                suites, components = values
                found += [(u, suites, components) for u in fields.get("URIs", "").split()]
    for file in (_APT / "sources.list", *sorted(_APT.glob("sources.list.d/*.list"))):
        text = file.read_text() if file.exists() else ""
        for line in re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(.*)$", text, re.MULTILINE):
            mirror, suite, *components = line.split()
            found.append((mirror, (suite,), tuple(components)))
    return found


def bootstrap(root: Path, source: Source) -> None:
    """Install a minimal Debian with Python into a folder."""
    argv = [command("debootstrap"), "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
    argv += [f"--components={','.join(source.components or ('main',))}"]
    # It mounts things within the root, which should go when it does.
    _run(contained([*argv, source.suite, str(root), source.mirror]))
    version = python_version(root)
    _compile(root, f"/usr/lib/python{version}")


def wanted_base_file(name: str) -> bool:
    """Whether a path of the bootstrapped root goes into the image."""
    return not _NOT_IN_BASE.match(name) or name.endswith("/copyright")


def python_version(root: Path) -> str:
    """The root's own Python, as 3.11."""
    names = (p.name for p in (root / "usr/bin").glob("python3.*"))
    versions = [n.removeprefix("python") for n in names if re.fullmatch(r"python3\.\d+", n)]
    if len(versions) != 1:
        raise SandboxError(f"the Debian image has no single Python: {versions}")
    return versions[0]


def install_packages(root: Path, requirements: Path) -> str:
    """Install from PyPI as pip is configured here; returns the folder within the root."""
    version = python_version(root)
    folder = f"usr/local/lib/python{version}/dist-packages"
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir"]
    argv += [f"--target={root / folder}", f"--python-version={version}", "--only-binary=:all:"]
    _run([*argv, "--root-user-action=ignore", f"--requirement={requirements}"])
    for file in sorted((root / folder).rglob("*")):
        if not file.is_dir() and not wanted_package_file(str(file.relative_to(root))):
            file.unlink()
    _compile(root, f"/{folder}")
    return folder


def wanted_package_file(name: str) -> bool:
    """Whether an installed file goes into the image: no tests, headers or sources."""
    return not _NOT_IN_PACKAGES.search(name)


def _compile(root: Path, folder: str) -> None:
    """Compile ahead; by hash, since a layer's files have no times of their own.

    Otherwise every start of a container would compile what it imports once more.
    """
    (root / "dev/shm").mkdir(parents=True, exist_ok=True)
    argv = [command("chroot"), str(root), "python3", "-m", "compileall", "-q", "-f", "-j", "0"]
    # Some packages carry templates that are no valid Python; that is no reason to fail.
    subprocess.run(
        [*argv, "--invalidation-mode=unchecked-hash", folder], capture_output=True, check=False
    )


def _run(argv: list[str]) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise SandboxError(f"{Path(argv[0]).name} failed:\n" + "\n".join(said))
