"""A progress endpoint without TLS, for tests of the client."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """Answers with the statuses given, the last one for ever."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.answer = b'{"error": "step: no", "durableStep": null}'
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                endpoint.bodies.append(json.loads(self.rfile.read(length)))
                endpoint.tokens.append(self.headers.get("Authorization", ""))
                status = endpoint.statuses[0]
                if len(endpoint.statuses) > 1:
                    endpoint.statuses.pop(0)
                answer = endpoint.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/progress"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 5
        while len(self.bodies) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(self.bodies) >= count

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
