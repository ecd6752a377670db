"""A webhook that answers every review with HTTP 500: ``failing_webhook CERT KEY PORT_FILE``."""

from __future__ import annotations

import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Failing(BaseHTTPRequestHandler):
    """Fails, whatever is asked."""

    def do_POST(self) -> None:
        """A review."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(500, "this webhook is broken")


def main() -> None:
    """Serve until killed; the port is in the file once it listens."""
    certificate, key, port_file = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    partial = Path(f"{port_file}.partial")
    partial.write_text(str(server.server_port))
    partial.rename(port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
