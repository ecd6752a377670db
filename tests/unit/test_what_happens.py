"""docs/what-happens.md says what users see; each of its rows is told here, and must be true."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goodput_operator.domain.model import (
    ContainerExit,
    JobKey,
    Silence,
    TopologyDomain,
    WorkloadCondition,
)
from tests.unit.domain.world import World, job_spec

PAGE = Path(__file__).parents[2] / "docs" / "what-happens.md"
CHECKPOINT = {"uri": "gs://bucket/run", "gracePeriodSeconds": 20}

Told = tuple[World, JobKey]
Story = Callable[[], Told]
STORIES: dict[str, Story] = {}


def story(event: str) -> Callable[[Story], Story]:
    """The row whose first cell is this."""

    def keep(told: Story) -> Story:
        STORIES[event] = told
        return told

    return keep


def running(spare: int = 2, replicas: int = 2, **spec: Any) -> Told:
    """A gang that has saved step 100, and reached step 120."""
    world = World()
    world.add_nodes(*(f"node-{i}" for i in range(replicas + spare)))
    key = world.submit(spec=job_spec(replicas=replicas, checkpoint=CHECKPOINT, **spec))
    world.run(key)
    world.report(key, step=120, durable=100)
    world.run(key)
    world.now += 100
    return world, key


def host(world: World, key: JobKey, rank: int = 0) -> str:
    node = world.pods_of(key)[rank].node
    assert node is not None
    return node


def later(world: World, key: JobKey, seconds: float) -> Told:
    world.now += seconds
    world.run(key)
    return world, key


@story("A node is lost")
def _node_lost() -> Told:
    world, key = running()
    world.lose(host(world, key))
    return later(world, key, 2)


@story("Several nodes are lost at once")
def _rack_lost() -> Told:
    world, key = running(replicas=4, spare=6)
    for rank in range(2):
        world.lose(host(world, key, rank))
    return later(world, key, 2)


@story("Most of the cluster falls silent at once")
def _cluster_silent() -> Told:
    world, key = running(replicas=4, spare=0)
    for name, node in world.nodes.items():
        world.nodes[name] = replace(
            node, ready=False, ready_since=world.now, unknown=True, silence=Silence(world.now, None)
        )
    return later(world, key, 2)


@story("A node is lost, and there is no room for the gang elsewhere")
def _no_room() -> Told:
    world, key = running(spare=0)
    world.lose(host(world, key))
    later(world, key, 2)
    return later(world, key, world.policy.hold_seconds + 1)


@story("A node is lost, there is no room for the gang elsewhere, and it has `minReplicas`")
def _shrinks() -> Told:
    world, key = running(replicas=4, spare=0, least=2)
    world.lose(host(world, key))
    later(world, key, 2)
    return later(world, key, world.policy.shrink_seconds)


@story("There is quota for a part of the gang, and it has `minReplicas`")
def _admitted_in_part() -> Told:
    world = World(quota=3)
    world.add_nodes(*(f"node-{i}" for i in range(4)))
    key = world.submit(spec=job_spec(replicas=4, least=2, checkpoint=CHECKPOINT))
    return later(world, key, 0)


@story("There is quota and room for more of a gang that runs smaller")
def _grows() -> Told:
    world, key = _admitted_in_part()
    world.events.clear()
    world.report(key, step=120, durable=100)
    world.quota = 4
    later(world, key, world.policy.grow_after_seconds)
    later(world, key, world.policy.grow_room_seconds)
    world.now += 15
    world.report(key, step=160, durable=160)
    return later(world, key, 0)


@story("A node is lost under Kueue's topology-aware scheduling")
def _topology() -> Told:
    world, key = running()
    workload = world.workload(key)
    host_name = "kubernetes.io/hostname"
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, labels={host_name: name})
    domains = tuple(TopologyDomain(((host_name, host(world, key, rank)),), 1) for rank in (0, 1))
    assigned = tuple(replace(each, topology=domains) for each in workload.assignments)
    world.workloads[workload.name] = replace(workload, assignments=assigned)
    world.lose(host(world, key))
    return later(world, key, 2)


@story("A rank crashes")
def _crash() -> Told:
    world, key = running()
    world.exit("job-a1-worker-0", 1, "ValueError: no such dataset")
    return later(world, key, 0)


@story("A rank runs out of memory")
def _oom() -> Told:
    world, key = running()
    done = ContainerExit("main", 137, "OOMKilled", "", world.now)
    pod = world.pods["job-a1-worker-0"]
    world.pods[pod.name] = replace(pod, phase="Failed", ready=False, exits=(done,))
    return later(world, key, 0)


@story("A rank crashes because the node of another is dead")
def _crash_explained() -> Told:
    world, key = running()
    world.exit("job-a1-worker-1", 1, "connection reset by peer")
    world.run(key)
    world.now += 40
    world.lose(next(iter(world.job(key).attempts[-1].nodes)))
    return later(world, key, 2)


@story("The last crash that the budget allows is exceeded")
def _budget() -> Told:
    world, key = running(faultTolerance={"maxCrashRestarts": 0})
    world.exit("job-a1-worker-0", 1)
    world.run(key)
    return later(world, key, world.policy.attribution_seconds + 1)


@story("A rank fails, and a rule says `Fail`")
def _rule() -> Told:
    world, key = running(
        faultTolerance={"rules": [{"action": "Fail", "exitCodes": [78]}]},
    )
    world.exit("job-a1-worker-0", 78)
    world.run(key)
    return later(world, key, world.policy.attribution_seconds + 1)


def hangs(times: int, **tolerance: Any) -> Told:
    """A gang that reaches step 120, and makes no step any more, so many times."""
    world, key = running(faultTolerance={"progressTimeoutSeconds": 600, **tolerance})
    world.listen()
    world.step_to(key, 119, 119)
    world.now += 2
    world.step_to(key, 120, 119)
    for wait in (600, 1800)[:times]:
        world.now += wait
        world.run(key)
    return world, key


@story("The ranks make no step for `progressTimeoutSeconds`")
def _hung() -> Told:
    return hangs(1)


@story("The ranks hang again and again, without a new step in between")
def _hangs() -> Told:
    return hangs(2, maxHangRestarts=1)


@story("Somebody deletes a pod of the gang")
def _pod_deleted() -> Told:
    world, key = running()
    del world.pods["job-a1-worker-0"]
    return later(world, key, 0)


@story("A pod is evicted through the Eviction API")
def _evicted_pod() -> Told:
    world, key = running()
    world.evict_pod("job-a1-worker-0")
    return later(world, key, 0)


@story("kube-scheduler preempts a pod for one of higher priority")
def _scheduler_preempts() -> Told:
    world, key = running()
    pod = world.pods["job-a1-worker-0"]
    world.pods[pod.name] = replace(pod, disruption="PreemptionByScheduler", deleting=True)
    return later(world, key, 0)


@story("Kueue preempts the job")
def _preempted() -> Told:
    world, key = running()
    world.quota = 0
    world.evict(key, "Preempted")
    return later(world, key, 0)


@story("A node is cordoned, and there is room elsewhere")
def _cordoned() -> Told:
    world, key = running()
    world.cordon(host(world, key))
    world.run(key)
    world.now += 15
    world.report(key, step=140, durable=140)
    return later(world, key, 0)


@story("A node is cordoned, and there is no room elsewhere")
def _cordoned_without_room() -> Told:
    world, key = running(spare=0)
    world.cordon(host(world, key))
    return later(world, key, 0)


@story("A node gets a bad condition")
def _unhealthy() -> Told:
    world, key = running()
    world.sicken(host(world, key))
    world.run(key)
    world.now += 15
    world.report(key, step=140, durable=140)
    return later(world, key, 0)


@story("A node is drained")
def _drained() -> Told:
    world, key = running()
    world.cordon(host(world, key))
    world.evict_pod("job-a1-worker-0")
    return later(world, key, 0)


@story("A pod does not bind where it was placed")
def _does_not_bind() -> Told:
    world = World(bind=False)
    world.add_nodes("node-0", "node-1", "node-2")
    key = world.submit(spec=job_spec())
    world.run(key)
    for name in ("job-a1-worker-0", "job-a1-worker-1"):
        pod = world.pods[name]
        world.pods[name] = replace(pod, unschedulable_message="0/3 nodes are available")
    return later(world, key, world.policy.bind_seconds + 1)


@story("`restartScope: Failed`, and a node is lost")
def _replaced() -> Told:
    world, key = running(replicas=3, faultTolerance={"restartScope": "Failed"})
    world.lose(host(world, key, 2))
    return later(world, key, 2)


@story("`spec.suspend` is set to true")
def _suspended() -> Told:
    world, key = running()
    world.edit(key, suspend=True)
    return later(world, key, 0)


@story("`activeDeadlineSeconds` is over")
def _deadline() -> Told:
    world, key = running(activeDeadlineSeconds=60)
    return later(world, key, 0)


@story("The Workload is deactivated by somebody")
def _deactivated() -> Told:
    world, key = running()
    workload = world.workload(key)
    world.workloads[workload.name] = replace(
        workload,
        active=False,
        evicted=WorkloadCondition(True, "Deactivated", "The workload is deactivated", world.now),
    )
    return later(world, key, 0)


@story("All ranks succeed")
def _succeeded() -> Told:
    world, key = running()
    world.finish(key)
    return later(world, key, 0)


Row = tuple[str, str, str]
"""State, what it says, what it is counted as."""


def rows() -> dict[str, Row]:
    """The rows of the page's tables of five columns, by their first cell."""
    found: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 5 and cells[0] != "what happens" and not cells[0].startswith("---"):
            assert cells[0] not in found, f"two rows: {cells[0]}"
            found[cells[0]] = (cells[1], cells[2], cells[3])
    return found


def said(world: World, key: JobKey) -> list[tuple[str, str]]:
    """What was said of a job, as the page writes it: Events, and the conditions as they are."""
    events = [(event.reason, event.message) for owner, event in world.events if owner == key]
    conditions = [
        (f"{each.type}={each.status}/{each.reason}", each.message)
        for each in world.job(key).conditions
    ]
    return events + conditions


def fits(pattern: str, text: str) -> bool:
    parts = (re.escape(part) for part in pattern.split("…"))
    return re.fullmatch(".+?".join(parts), text, re.DOTALL) is not None


def test_every_row_has_its_story_and_every_story_its_row() -> None:
    assert set(rows()) == set(STORIES)


@pytest.mark.parametrize("event", STORIES)
def test_what_the_page_says_is_what_happens(event: str) -> None:
    state, sayings, counted = rows()[event]
    world, key = STORIES[event]()
    status = world.job(key)
    assert status.phase == state
    counts: dict[str, Any] = status.restarts.model_dump(by_alias=True, exclude_defaults=True)
    cause, _, times = counted.partition(" ×")
    assert counts == ({} if counted == "–" else {cause: int(times or 1)})
    heard = said(world, key)
    for saying in sayings.split("<br>"):
        parts = re.fullmatch(r"`([^`]+)` (.+)", saying.strip())
        assert parts is not None, f"write it as `Reason` text: {saying}"
        name, text = parts.groups()
        told = [message for reason, message in heard if reason == name]
        assert any(fits(text, message) for message in told), f"{name} says {told}, not {text}"


def test_no_story_leaves_out_an_event_of_a_failure() -> None:
    """What is worth a Warning is worth its place on the page."""
    for event, told in STORIES.items():
        world, _ = told()
        warned = {each.reason for _, each in world.events if each.type == "Warning"}
        missing = {reason for reason in warned if f"`{reason}`" not in rows()[event][1]}
        assert not missing - {"Failed", "RankCrashed"}, f"{event}: {missing}"
