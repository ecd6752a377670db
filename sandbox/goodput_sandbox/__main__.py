"""Command line: up, down, status, build."""

from __future__ import annotations

import argparse
import json
import sys

from . import build, operator_process
from .lifecycle import say
from .options import SandboxError, SandboxOptions, sandboxes_root
from .sandbox import Sandbox


def main() -> int:
    """Entry point; the exit code says whether it worked."""
    args = _parser().parse_args()
    try:
        code: int = args.run(args)
        return code
    except SandboxError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="goodput_sandbox", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="dev", help="which sandbox (default: dev)")
    up = commands.add_parser("up", parents=[named], help="start a sandbox")
    up.add_argument("--simulated-nodes", type=int, default=0, metavar="N")
    up.add_argument("--real-nodes", type=int, default=0, metavar="N")
    up.add_argument("--operator", action="store_true", help="start the operator in it too")
    up.add_argument("--rootless", action="store_true", help="do as if not root")
    up.add_argument("--owner-pid", type=int, help="take it down when this process has gone")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", parents=[named], help="stop it and remove every trace")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="what runs")
    status.add_argument("--name", help="only this sandbox")
    status.set_defaults(run=_status)
    built = commands.add_parser("build", help="build missing binaries")
    built.set_defaults(run=_build)
    return parser


def _up(args: argparse.Namespace) -> int:
    sandbox = Sandbox(args.name)
    options = SandboxOptions(
        simulated_nodes=args.simulated_nodes, real_nodes=args.real_nodes, rootless=args.rootless
    )
    sandbox.up(options, owner_pid=args.owner_pid)
    if args.operator and not sandbox.processes.alive(operator_process.PROCESS):
        operator_process.start_operator(sandbox)
    print(f"export KUBECONFIG={sandbox.kubeconfig}")
    return 0


def _down(args: argparse.Namespace) -> int:
    Sandbox(args.name).down()
    return 0


def _build(_: argparse.Namespace) -> int:
    print(build.ensure(say))
    return 0


def _status(args: argparse.Namespace) -> int:
    root = sandboxes_root()
    names = [p.name for p in sorted(root.iterdir()) if p.is_dir()] if root.is_dir() else []
    chosen = [n for n in names if args.name in (None, n)]
    for name in chosen:
        _print_status(Sandbox(name))
    if not chosen:
        print("no sandbox")
    return 0 if chosen else 1


def _print_status(sandbox: Sandbox) -> None:
    state = sandbox.state
    kind = "own network namespace" if sandbox.rooted else "without root"
    print(f"{sandbox.name}: {'up' if sandbox.is_up else 'not up'} ({kind})")
    print(f"  kubeconfig {sandbox.kubeconfig}")
    for entry in sandbox.processes.entries():
        running = "running" if entry.identity.alive() else "ended"
        print(f"  {entry.name:<26} {entry.pid:>8} {running}")
    for name, port in state.get("forwards", {}).items():
        print(f"  127.0.0.1:{port} -> {name.removeprefix('forward-')}")
    if sandbox.is_up:
        items = json.loads(sandbox.kubectl("get", "nodes", "-o", "json"))["items"]
        conditions = [c for n in items for c in n["status"].get("conditions", [])]
        ready = sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        print(f"  nodes: {ready} of {len(items)} Ready")


if __name__ == "__main__":
    sys.exit(main())
