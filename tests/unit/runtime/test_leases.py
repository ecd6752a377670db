"""Polling node Leases: what counts as silence, and who is told."""

import asyncio
from typing import Any

import pytest

from goodput_operator.domain.model import Lease, Silence
from goodput_operator.kube.errors import Transient
from goodput_operator.runtime.leases import LeaseBook, poll_leases
from goodput_operator.runtime.store import Store
from tests.unit.runtime import raws
from tests.unit.runtime.fake_client import FakeClient

DAY = 86_400.0


def lease(name: str, renewed: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "kube-node-lease"}
    return {"metadata": metadata, "spec": {"renewTime": renewed, "holderIdentity": name}}


class Polls:
    """Polls of one Lease, of which a test says only whether it was renewed since the last."""

    def __init__(self, timeout: float = 20.0, interval: float = 5.0) -> None:
        self.book = LeaseBook(timeout, interval)
        self.at, self.now, self.renewals = 100.0, 1_000_000.0, 0

    def poll(self, after: float = 5.0, renewed: bool = False, jump: float = 0.0) -> Lease:
        self.at += after
        self.now += after + jump
        self.renewals += renewed
        text = f"2031-01-01T00:00:{self.renewals:02}Z"
        self.sign = self.book.observe([lease("n", text)], self.at, self.now)["n"]
        return self.sign.state


def test_a_lease_that_is_not_renewed_is_late_and_then_stale() -> None:
    polls = Polls()
    assert [polls.poll() for _ in range(6)] == [
        Lease.FRESH,
        Lease.FRESH,
        Lease.FRESH,
        Lease.LATE,
        Lease.STALE,
        Lease.STALE,
    ]
    assert polls.sign.unchanged_since == polls.now - 25
    assert polls.poll(renewed=True) is Lease.FRESH


def test_a_node_whose_clock_is_wrong_by_years_is_as_alive_as_any() -> None:
    polls = Polls()
    assert {polls.poll(renewed=True) for _ in range(20)} == {Lease.FRESH}


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_our_own_clock_may_jump(jump: float) -> None:
    polls = Polls()
    polls.poll()
    assert polls.poll(jump=jump) is Lease.FRESH


def test_while_the_api_server_does_not_answer_no_lease_grows_old() -> None:
    polls = Polls()
    polls.poll()
    assert polls.poll(after=600) is Lease.FRESH  # kubelets could not renew either
    assert polls.poll() is Lease.LATE
    assert polls.poll(renewed=True) is Lease.FRESH


def test_a_renewal_is_a_sign_of_life_after_the_poll_before_it() -> None:
    polls = Polls()
    polls.poll()
    assert polls.sign.alive_at is None
    before = polls.now
    polls.poll(renewed=True)
    assert polls.sign.alive_at == before


def test_a_node_that_has_no_lease_any_more_is_unknown() -> None:
    book = LeaseBook(20.0, 5.0)
    book.observe([lease("a", "1"), lease("b", "1")], 0.0, 0.0)
    assert set(book.observe([lease("b", "1")], 5.0, 5.0)) == {"b"}


# The poller


class Woken:
    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, key: Any, delay: float = 0.0) -> None:
        self.names.append(key.name)


class Poller:
    """Runs ``poll_leases`` with a clock that a test moves; real time is a few milliseconds."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.client, self.woken, self.at = FakeClient(), Woken(), 0.0
        self.store = Store(self.woken)
        for job in jobs:
            self.store.put_job(job)
        for name in ("node-1", "node-2"):
            self.store.put_node(raws.node(name=name))
        self.renew("1", "1")

    def renew(self, *times: str) -> None:
        leases = [lease(f"node-{i}", time) for i, time in enumerate(times, 1)]
        self.client.lists["leases"] = (leases, "7")

    async def poll(self) -> None:
        """Some polls, 5 seconds apart by its clock."""

        def clock() -> float:
            self.at += 5.0
            return self.at

        task = asyncio.create_task(
            poll_leases(self.client, self.store, 20.0, 0.001, clock)  # type: ignore[arg-type]
        )
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})

    def lease(self, name: str) -> Lease:
        return self.store.snapshot().nodes[name].lease


def running(name: str = "digits", *nodes: str, **status: Any) -> dict[str, Any]:
    placement = {
        "attempt": 1,
        "nodes": list(nodes),
        "roles": [{"name": "worker", "nodes": "0*2"}],
        "committedAt": "2026-01-01T00:00:00Z",
    }
    held = {"placement": placement} if nodes else {}
    return raws.job(name=name, status={"phase": "Running", "attempt": 1, **held, **status})


@pytest.mark.parametrize(
    ("job", "polled"),
    [
        (running("digits", "node-1"), True),
        (running(phase="Restarting"), True),
        (running(phase="Queued"), False),
        (running(phase="Complete"), False),
    ],
    ids=["placed", "restarting", "queued", "over"],
)
async def test_leases_are_listed_only_while_something_can_be_lost(
    job: dict[str, Any], polled: bool
) -> None:
    poller = Poller(job)
    await poller.poll()
    assert (poller.client.count("list", "leases") > 0) == polled
    assert {space for _, _, space in poller.client.calls} <= {"kube-node-lease"}


async def test_a_poll_that_fails_changes_nothing_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poller = Poller(running("digits", "node-1"))
    poller.client.refuse["list", "leases"] = Transient("list leases", "no answer")
    await poller.poll()
    assert poller.lease("node-1") is Lease.UNKNOWN
    assert "node Leases are looked at again" in caplog.text


# What the store makes of it


def tell(store: Store, *polls: tuple[str, str]) -> None:
    book = LeaseBook(20.0, 5.0)
    for number, times in enumerate(polls):
        leases = [lease(f"node-{i}", time) for i, time in enumerate(times, 1)]
        store.put_leases(book.observe(leases, 5.0 * number, 1000.0 + 5.0 * number))


def test_the_jobs_of_a_node_are_woken_when_its_lease_goes_stale_and_not_by_renewals() -> None:
    poller = Poller(running("on-1", "node-1"), running("on-2", "node-2"))
    tell(poller.store, ("1", "1"))
    poller.woken.names.clear()
    tell(poller.store, ("1", "1"), ("2", "2"), ("3", "3"))
    assert poller.woken.names == []
    tell(poller.store, *((("1", str(i))) for i in range(5)))
    assert set(poller.woken.names) == {"on-1"}
    node = poller.store.snapshot().nodes["node-1"]
    assert (node.lost, node.silence) == (True, Silence(1000.0))


def test_a_node_keeps_what_its_lease_has_shown_when_its_object_changes() -> None:
    poller = Poller(running("digits", "node-1"))
    tell(poller.store, *((("1", str(i))) for i in range(5)))
    poller.store.put_node(raws.node(version=6, name="node-1", unschedulable=True))
    node = poller.store.snapshot().nodes["node-1"]
    assert (node.lease, node.unschedulable) == (Lease.STALE, True)


def test_a_job_that_waits_for_the_verdict_on_a_crash_is_woken_by_each_poll() -> None:
    poller = Poller(running(phase="Restarting", reason="CrashBudgetExhausted"))
    poller.woken.names.clear()
    tell(poller.store, ("1", "1"), ("2", "2"))
    assert poller.woken.names
    assert poller.store.snapshot().nodes["node-1"].heartbeat_at is not None


def test_what_is_known_of_leases_is_forgotten_when_they_are_no_longer_polled() -> None:
    poller = Poller(running("digits", "node-1"))
    tell(poller.store, *((("1", str(i))) for i in range(5)))
    poller.store.put_leases({})
    assert poller.lease("node-1") is Lease.UNKNOWN
    assert not poller.store.snapshot().nodes["node-1"].lost


def test_a_node_marked_unknown_is_silent_until_it_is_heard_and_its_taint_is_gone() -> None:
    now = 2_000_000_000.0
    store = Store(lambda key, delay=0.0: None, lambda: now)
    store.put_node(raws.node(version=5))
    store.put_node(raws.node(version=6, ready=False))
    silence = store.snapshot().nodes["node-1"].silence
    assert silence is not None
    assert silence.until is None
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    store.put_node(raws.node(version=7, taints=[taint]))
    assert store.snapshot().nodes["node-1"].silence == silence
    store.put_node(raws.node(version=8))
    assert store.snapshot().nodes["node-1"].silence == Silence(silence.since, now)


def test_a_lease_that_was_merely_late_leaves_no_trace_and_a_stale_one_does() -> None:
    poller = Poller(running("digits", "node-1"))
    late_and_stale = [("1", "1")] * 4 + [("2", "1"), ("3", "2")]
    tell(poller.store, *late_and_stale[:4])
    nodes = poller.store.snapshot().nodes
    assert [nodes[name].lease for name in ("node-1", "node-2")] == [Lease.LATE, Lease.LATE]
    tell(poller.store, *late_and_stale)
    assert nodes["node-1"].silence is None
    silence = nodes["node-2"].silence
    assert silence is not None
    assert silence.until is not None
