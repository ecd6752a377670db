"""The pods of a silent node count as gone in time: no event tells when, so it is looked at then."""

from collections.abc import Callable

import pytest

from goodput_operator.domain.model import JobKey
from tests.unit.domain.world import World, job_spec

Story = Callable[[World, JobKey], None]
FREES = {"ReleaseQuota", "FinishWorkload"}
"""The writes that give quota back."""


def complete(world: World, key: JobKey) -> None:
    """A second attempt ends well while a pod of the first still hangs on the dead node."""
    world.run(key)
    for pod in world.pods_of(key):
        if not pod.deleting:
            world.exit(pod.name, 0)
    world.run(key)


def suspend(world: World, key: JobKey) -> None:
    """Its user stops it."""
    world.edit(key, suspend=True)
    world.run(key)


def be_evicted(world: World, key: JobKey) -> None:
    """Kueue wants the quota back."""
    world.evict(key, "Preempted")
    world.run(key)


@pytest.mark.parametrize("story", [complete, suspend, be_evicted], ids=lambda s: s.__name__)
def test_case_01_quota_goes_back_as_soon_as_the_node_counts_as_gone(story: Story) -> None:
    world = World()
    world.add_nodes("n1", "n2", "n3", "n4")
    key = world.submit(spec=job_spec())
    world.run(key)
    lost, dead = world.now, world.pods_of(key)[0].node
    world.lose(str(dead))
    story(world, key)
    while not FREES & set(world.writes):
        wait = world.step(key).requeue_after
        assert wait is not None, "nobody would look again"
        world.now += wait
        world.run(key)
    assert 0 <= world.now - lost - world.policy.node_gone_seconds <= 1
