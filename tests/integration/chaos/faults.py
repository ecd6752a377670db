"""What goes wrong in a chaos run: every fault of the design's failure table, in random order."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from goodput_sandbox import kueue
from goodput_sandbox.operator_process import stop_operator
from tests.integration.api import Object, path_of
from tests.integration.cluster import Tenant

FAIL = "sandbox.goodput.dev/fail-exit-code"
EXIT_CODE = "7"
FREEZE_SECONDS = 4.0
Undo = Callable[[], None]


class Faults:
    """Draws faults from a seeded generator and does them; ``heal`` takes all of them back."""

    def __init__(
        self, tenant: Tenant, nodes: list[str], start_operator: Callable[[], None], seed: int
    ) -> None:
        self.tenant, self.nodes = tenant, nodes
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.crashed: Counter[str] = Counter()
        """How many crashes were asked for, by job."""
        self.lost: dict[str, Undo] = {}
        """Nodes that are out, each with how to bring it back."""
        self.suspended: set[str] = set()
        self._start_operator = start_operator
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.silence_a_node),
            (3, self.break_a_kubelet),
            (2, self.delete_a_node),
            (6, self.bring_a_node_back),
            (3, self.delete_a_pod),
            (2, self.evict_a_pod),
            (4, self.crash_a_rank),
            (2, self.suspend_a_job),
            (4, self.resume_a_job),
            (2, self.kill_the_operator),
            (1, self.freeze_the_api_server),
            (1, self.restart_kueue),
            (2, self.crowd_out),
        ]

    def one(self) -> str:
        """Do one fault; its name."""
        weights = [weight for weight, _ in self._kinds]
        _, fault = self.random.choices(self._kinds, weights)[0]
        self.done[fault.__name__] += 1
        fault()
        return fault.__name__

    def heal(self) -> None:
        """Bring back every node, resume every job, and let all that is killed run again."""
        for undo in list(self.lost.values()):
            undo()
        self.lost.clear()
        for job in sorted(self.suspended):
            self.tenant.patch(job, {"suspend": False})
        self.suspended.clear()
        self._start_operator()

    # Nodes

    def _sound(self) -> list[str]:
        return [node for node in self.nodes if node not in self.lost]

    def _pick_node(self) -> str | None:
        sound = self._sound()
        # At most a third is out at a time: more is the control plane's illness, tested elsewhere.
        return self.random.choice(sound) if len(sound) * 3 > len(self.nodes) * 2 else None

    def silence_a_node(self) -> None:
        if (node := self._pick_node()) is not None:
            self.tenant.sandbox.simulated.kill(node)
            self.lost[node] = lambda: self.tenant.sandbox.simulated.revive(node)

    def break_a_kubelet(self) -> None:
        if (node := self._pick_node()) is not None:
            self.tenant.sandbox.simulated.make_not_ready(node)
            self.lost[node] = lambda: self.tenant.sandbox.simulated.revive(node)

    def delete_a_node(self) -> None:
        if (node := self._pick_node()) is not None:
            found = self.tenant.api.request("GET", str(path_of("nodes", None, node)))
            if found is None:
                return
            self.tenant.sandbox.simulated.delete(node)
            self.lost[node] = lambda: self._make_node_again(found)

    def _make_node_again(self, node: Object) -> None:
        kept = ("name", "labels", "annotations")
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {name: node["metadata"].get(name) for name in kept},
            "status": {name: node["status"][name] for name in ("capacity", "allocatable")},
        }
        self.tenant.api.request("POST", str(path_of("nodes", None)), body)
        self.tenant.sandbox.simulated.wait_ready([node["metadata"]["name"]], timeout=30)

    def bring_a_node_back(self) -> None:
        if self.lost:
            node = self.random.choice(sorted(self.lost))
            self.lost.pop(node)()

    # Pods

    def _pods(self) -> Iterator[Object]:
        found = self.tenant.api.request("GET", str(path_of("pods", self.tenant.name)))
        for pod in sorted(
            found["items"] if found else [], key=lambda p: str(p["metadata"]["name"])
        ):
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get(
                "deletionTimestamp"
            ):
                yield pod

    def _pick_pod(self) -> Object | None:
        pods = [
            pod for pod in self._pods() if "goodput.dev/job" in pod["metadata"].get("labels", {})
        ]
        return self.random.choice(pods) if pods else None

    def delete_a_pod(self) -> None:
        if (pod := self._pick_pod()) is not None:
            path = path_of("pods", self.tenant.name, pod["metadata"]["name"])
            self.tenant.api.request("DELETE", str(path))

    def evict_a_pod(self) -> None:
        if (pod := self._pick_pod()) is not None:
            name = pod["metadata"]["name"]
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": self.tenant.name},
            }
            path = f"{path_of('pods', self.tenant.name, name)}/eviction"
            self.tenant.api.request("POST", path, body)

    def crash_a_rank(self) -> None:
        if (pod := self._pick_pod()) is not None:
            name = pod["metadata"]["name"]
            body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {FAIL: EXIT_CODE}}}
            self.crashed[pod["metadata"]["labels"]["goodput.dev/job"]] += 1
            self.tenant.api.request("PATCH", str(path_of("pods", self.tenant.name, name)), body)

    def crowd_out(self) -> None:
        """A pod of higher priority, of nobody's job, wants room on a node for a moment."""
        node = self.random.choice(self._sound())
        number = self.done["crowd_out"]
        metadata = {"name": f"crowd-{number}", "labels": {}}
        annotations = {"sandbox.goodput.dev/complete-after": "3s"}
        limits = {"nvidia.com/gpu": "1"}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "annotations": annotations},
            "spec": {
                "priorityClassName": "system-cluster-critical",
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "other", "resources": {"limits": limits}}],
            },
        }
        self.tenant.api.request("POST", str(path_of("pods", self.tenant.name)), body)

    # Jobs

    def suspend_a_job(self) -> None:
        found = self.tenant.api.request("GET", str(path_of("trainingjobs", self.tenant.name)))
        names = sorted(
            job["metadata"]["name"]
            for job in (found["items"] if found else [])
            if job.get("status", {}).get("phase") not in ("Complete", "Failed")
        )
        if names:
            job = self.random.choice(names)
            self.tenant.patch(job, {"suspend": True})
            self.suspended.add(job)

    def resume_a_job(self) -> None:
        if self.suspended:
            job = self.random.choice(sorted(self.suspended))
            self.suspended.discard(job)
            self.tenant.patch(job, {"suspend": False})

    # The control plane

    def kill_the_operator(self) -> None:
        stop_operator(self.tenant.sandbox, kill=True)
        time.sleep(self.random.uniform(0, 2))
        self._start_operator()

    def freeze_the_api_server(self) -> None:
        self.tenant.sandbox.freeze("kube-apiserver")
        time.sleep(FREEZE_SECONDS)
        self.tenant.sandbox.thaw("kube-apiserver")

    def restart_kueue(self) -> None:
        self.tenant.sandbox.stop_process(kueue.PROCESS, kill=True)
        self.tenant.sandbox.restart_process(kueue.PROCESS)

    def told(self) -> str:
        """What was done, how often."""
        return json.dumps(dict(sorted(self.done.items())))
