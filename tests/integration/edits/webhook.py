"""A third party's admission webhook: ``python -m tests.integration.edits.webhook CERT KEY ADDRESS
PORT``.

What it does is in the path: ``/refuse`` says no, ``/hang`` says nothing for long, both to rank 1 of
a gang only; ``/mutate`` adds to pods what such webhooks add, ``/elsewhere/NODE`` sends rank 1 to a
node of its own choice.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_SECONDS = 5.0
SAYS = "no second rank on a Friday"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


def answer(path: str, pod: Object) -> Object:
    """The answer about a pod, without its UID."""
    behaviour, _, node = path.removeprefix("/").partition("?")[0].partition("/")
    second = pod["metadata"].get("labels", {}).get("goodput.dev/rank") == "1"
    if behaviour == "refuse" and second:
        return {"allowed": False, "status": {"code": 403, "message": SAYS}}
    if behaviour == "hang" and second:
        time.sleep(HANG_SECONDS)
    patch = []
    if behaviour == "mutate":
        patch = list(_additions(pod["spec"]))
    if behaviour == "elsewhere" and second:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}}
        patch = [
            _add("/spec/affinity", affinity),
            _add("/spec/tolerations/-", {"key": "shunned", "operator": "Exists"}),
        ]
    if not patch:
        return {"allowed": True}
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def _additions(spec: Object) -> list[Object]:
    """A label, a toleration, a sidecar, and a preference and a demand of its own as to nodes."""
    affinity = spec["affinity"]
    demand = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    for term in affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]:
        term["matchExpressions"] = [*term.get("matchExpressions", ()), demand]
    preference = {"weight": 1, "preference": {"matchExpressions": [demand]}}
    affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = [preference]
    return [
        _add("/metadata/labels/mesh", "yes"),
        _add("/spec/tolerations/-", {"key": "mesh", "operator": "Exists"}),
        _add("/spec/containers/-", {"name": "proxy", "image": "mesh"}),
        _add("/spec/affinity", affinity),
    ]


def _add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


class Handler(BaseHTTPRequestHandler):
    """Answers AdmissionReviews."""

    def do_POST(self) -> None:
        """One review."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        response = {**answer(self.path, request["object"]), "uid": request["uid"]}
        kind = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
        body = json.dumps({**kind, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(certificate: str, key: str, address: str, port: str) -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer((address, int(port)), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
