"""The forwarding process: run by path, so it imports nothing but the standard library.

A socket stays in the namespace where it was made: the listening one is made on the host, then
the process moves itself into the sandbox and makes its outgoing connections there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import socket

_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16


def _move_into(namespace: str) -> None:
    """setns(2) of this, the only, thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    finally:
        os.close(handle)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, and pass the end on."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _serve(listener: socket.socket, address: str, port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError):
            back, other = await asyncio.open_connection(address, port)
            await asyncio.gather(_pump(reader, other), _pump(back, writer))
        for end in (writer, other):
            if end is not None:
                end.close()

    server = await asyncio.start_server(handle, sock=listener)
    await server.serve_forever()


def main() -> None:
    """Entry point of the forwarding process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    listener = socket.socket(fileno=args.listen_fd)
    listener.set_inheritable(False)
    listener.setblocking(False)
    _move_into(args.netns)
    asyncio.run(_serve(listener, args.address, args.port))


if __name__ == "__main__":
    main()
