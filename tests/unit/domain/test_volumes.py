"""What the ranks mount: a job waits for it without holding quota, and is placed where it is."""

from dataclasses import replace
from typing import Any

import pytest

from goodput_operator import constants as c
from goodput_operator.api.spec import TrainingJobSpec
from goodput_operator.api.status import Phase
from goodput_operator.domain.storage import VolumeView
from tests.unit.domain.world import World, job_spec, template

ON_N2 = ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},)
CHECKPOINT = {"uri": "/ckpt", "volume": {"claimName": "ckpt", "mountPath": "/ckpt"}}


@pytest.fixture(params=[False, True], ids=["plain queue", "queue with our check"])
def world(request: pytest.FixtureRequest) -> World:
    made = World(our_check=request.param)
    made.add_nodes("n1", "n2", "n3")
    return made


def mounting(replicas: int = 2, **pod_spec: Any) -> TrainingJobSpec:
    """A job whose template mounts the claim ``data``."""
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = template(**{"volumes": volumes, **pod_spec})
    roles = [{"name": "worker", "replicas": replicas, "template": spec}]
    return TrainingJobSpec.model_validate({"roles": roles})


def message(world: World, key: Any) -> str:
    return next(each.message for each in world.job(key).conditions if each.type == "Running")


@pytest.mark.parametrize(
    ("spec", "claim", "field"),
    [
        (job_spec(checkpoint=CHECKPOINT), "ckpt", "spec.checkpoint.volume.claimName"),
        (
            mounting(),
            "data",
            "spec.roles[worker].template.spec.volumes[d].persistentVolumeClaim.claimName",
        ),
    ],
    ids=["of the checkpoint", "of the template"],
)
def test_a_missing_claim_is_named_and_waited_for_without_quota(
    world: World, spec: TrainingJobSpec, claim: str, field: str
) -> None:
    key = world.submit(spec=spec)
    world.run(key)
    assert (world.job(key).phase, world.job(key).reason) == (Phase.PENDING, "VolumeClaimMissing")
    assert message(world, key).startswith(f"{field}: there is no PersistentVolumeClaim {claim!r}")
    assert (world.workloads, world.pods) == ({}, {})
    world.add_claim(claim, "ReadWriteMany")
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"deleting": True}, "is being deleted"), ({"phase": "Lost"}, "has lost its volume pv-data")],
)
def test_a_claim_that_cannot_be_mounted_any_more_counts_as_missing(
    world: World, fields: dict[str, Any], said: str
) -> None:
    world.add_claim("data", "ReadWriteMany", **fields)
    key = world.submit(spec=mounting())
    world.run(key)
    assert world.job(key).reason == c.Reason.VOLUME_CLAIM_MISSING
    assert said in message(world, key)


def test_a_claim_that_vanishes_does_not_touch_what_runs(world: World) -> None:
    world.add_claim("data", "ReadWriteMany")
    key = world.submit(spec=mounting())
    world.run(key)
    world.claims.clear()
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 1)


def test_a_restart_without_the_claim_gives_the_quota_back_until_it_is_there_again(
    world: World,
) -> None:
    world.add_claim("data", "ReadWriteMany")
    key = world.submit(spec=mounting())
    world.run(key)
    kept = world.claims.pop(("team", "data"))
    world.lose(world.pods_of(key)[0].node or "")
    world.run(key)
    world.now += 120
    world.run(key)
    assert world.job(key).reason == c.Reason.VOLUME_CLAIM_MISSING
    assert world.used() == 0
    world.claims["team", "data"] = kept
    world.run(key)
    assert (world.job(key).phase, world.job(key).attempt) == (Phase.RUNNING, 2)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_claim_of_one_pod_serves_one_rank_only(world: World, replicas: int) -> None:
    world.nodes["n1"] = replace(world.nodes["n1"], allocatable=world.nodes["n1"].allocatable * 2)
    world.add_claim("data", "ReadWriteOncePod")
    key = world.submit(spec=mounting(replicas))
    world.run(key)
    if replicas == 1:
        assert world.job(key).phase == Phase.RUNNING
    else:
        assert world.job(key).reason == c.Reason.VOLUME_NOT_SHARED
        assert "ReadWriteOncePod, but 2 ranks mount it; use one that is" in message(world, key)


def test_a_claim_of_one_node_is_refused_when_no_node_could_hold_the_gang(world: World) -> None:
    world.quota = 0
    world.add_claim("data", "ReadWriteOnce")
    key = world.submit(spec=mounting())
    world.run(key)
    assert world.job(key).reason == c.Reason.VOLUME_NOT_SHARED
    assert "no node is large enough for all of them" in message(world, key)
    assert world.workloads == {}


def test_a_claim_of_one_node_is_good_where_all_ranks_are_on_it(world: World) -> None:
    world.add_nodes("big", gpus=4)
    world.add_claim("data", "ReadWriteOnce")
    key = world.submit(spec=mounting())
    world.run(key)
    assert {pod.node for pod in world.pods_of(key)} == {"big"}


def test_a_claim_of_one_node_waits_for_that_node_and_gives_the_quota_back(world: World) -> None:
    world.add_nodes("big", gpus=2)
    world.add_claim("data", "ReadWriteOnce")
    first = world.submit("first", spec=job_spec(replicas=1, gpus=2))
    world.run(first)
    key = world.submit(spec=mounting())
    world.run(key)
    assert world.job(key).reason == c.Reason.VOLUME_NOT_SHARED
    assert "there is room for them on 2 only" in message(world, key)
    assert world.pods_of(key, 1) == []
    world.now += 61
    world.run(key)
    world.run(key)
    assert world.used() == 2
    world.finish(first)
    world.run(first)
    world.now += 20
    world.run(key)
    assert {pod.node for pod in world.pods_of(key)} == {"big"}


@pytest.mark.parametrize(
    "modes", [("ReadWriteMany",), ("ReadOnlyMany",), (), ("ReadWriteOnce", "ReadWriteMany")]
)
def test_claims_that_several_nodes_can_mount_are_no_matter(
    world: World, modes: tuple[str, ...]
) -> None:
    world.add_claim("data", *modes)
    key = world.submit(spec=mounting())
    world.run(key)
    assert len({pod.node for pod in world.pods_of(key)}) == 2


def test_only_roles_that_mount_a_claim_must_share_its_node(world: World) -> None:
    world.add_claim("data", "ReadWriteOnce")
    plain = {"name": "reader", "replicas": 2, "template": template()}
    roles = [*mounting(1).model_dump(by_alias=True, mode="json")["roles"], plain]
    key = world.submit(spec=TrainingJobSpec.model_validate({"roles": roles}))
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING


def test_the_gang_is_placed_where_its_volume_can_be_used(world: World) -> None:
    world.nodes["n2"] = replace(world.nodes["n2"], labels={"zone": "b"})
    world.add_claim("data", "ReadWriteMany")
    world.volumes["pv-data"] = VolumeView("pv-data", ("team", "data"), ON_N2)
    key = world.submit(spec=mounting(1))
    world.run(key)
    assert [pod.node for pod in world.pods_of(key)] == ["n2"]


def test_without_a_node_for_its_volume_the_job_says_so(world: World) -> None:
    world.nodes["n2"] = replace(world.nodes["n2"], labels={"zone": "b"})
    world.add_claim("data", "ReadWriteMany")
    world.volumes["pv-data"] = VolumeView("pv-data", ("team", "data"), ON_N2)
    key = world.submit(spec=mounting(2))
    world.run(key)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES
    assert "2 node(s) had volume node affinity conflict" in message(world, key)


def test_a_volume_whose_terms_match_no_node_is_used_nowhere(world: World) -> None:
    world.add_claim("data", "ReadWriteMany")
    world.volumes["pv-data"] = VolumeView("pv-data", ("team", "data"), ())
    key = world.submit(spec=mounting(1))
    world.run(key)
    assert world.job(key).reason == c.Reason.WAITING_FOR_NODES


def test_resource_claims_by_name_are_refused_and_by_template_are_not(world: World) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "shared-gpu"}]
    key = world.submit(spec=mounting(volumes=[], resourceClaims=claims))
    world.run(key)
    assert world.job(key).reason == c.Reason.UNSUPPORTED_RESOURCE_CLAIMS
    assert "spec.roles[worker].template.spec.resourceClaims[gpu]" in message(world, key)
    assert "'shared-gpu'" in message(world, key)
    assert world.workloads == {}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    other = world.submit("other", spec=mounting(volumes=[], resourceClaims=claims))
    world.run(other)
    assert world.job(other).phase == Phase.RUNNING


@pytest.mark.parametrize("volumes", [{"name": "x"}, ["x"], [{"persistentVolumeClaim": "x"}], None])
def test_volumes_that_are_none_break_nothing(world: World, volumes: Any) -> None:
    key = world.submit(spec=mounting(volumes=volumes))
    world.run(key)
    assert world.job(key).phase == Phase.RUNNING
