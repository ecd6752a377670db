import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.builders.pod import build_pod, pin_to_node
from goodput_operator.builders.progress import ProgressTarget
from goodput_operator.domain.model import JobView, PodSetAssignment
from goodput_operator.domain.placement import codec
from goodput_operator.domain.plan import CreatePod
from goodput_operator.observe.pod import parse_pod

JobFactory = Callable[..., JobView]
UID = "0b9f6d1c-5f0e-4d3c-9f43-0d6f0a1b2c3d"
ACTION = CreatePod(attempt=3, role="worker", rank=2, node="n1")
PROGRESS = ProgressTarget("goodput-progress.goodput.svc:8443", "-----BEGIN CERTIFICATE-----")
PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def one_role(spec: dict[str, Any], metadata: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    template = {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}
    return [{"name": "worker", "replicas": 4, "template": template}]


def containers(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "train", "image": "train:1", **fields}]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def test_the_whole_pod(make_job: JobFactory, owner: dict[str, Any]) -> None:
    job = make_job(
        roles=one_role(containers()),
        checkpoint={
            "uri": "/ckpt/runs/",
            "volume": {"claimName": "checkpoints", "mountPath": "/ckpt"},
            "gracePeriodSeconds": 60,
        },
        status={
            "placement": {
                "attempt": 3,
                "nodes": ["n1"],
                "roles": [],
                "resumeStep": 120,
                "committedAt": "2026-01-31T08:00:00Z",
            }
        },
    )
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    assignment = PodSetAssignment(
        "worker", 4, {"accelerator": "h100"}, (toleration,), {"l": "1"}, {"a": "2"}
    )
    assert build_pod(job, ACTION, assignment, PROGRESS) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-a3-worker-2",
            "namespace": "team-a",
            "labels": {
                "l": "1",
                "goodput.dev/job": "digits",
                "goodput.dev/job-uid": UID,
                "goodput.dev/attempt": "3",
                "goodput.dev/role": "worker",
                "goodput.dev/rank": "2",
            },
            "annotations": {
                "a": "2",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "goodput.dev/progress-ca": "-----BEGIN CERTIFICATE-----",
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": "digits-a3-worker-2",
            "subdomain": "digits-ranks",
            "terminationGracePeriodSeconds": 60,
            "nodeSelector": {"accelerator": "h100"},
            "tolerations": [toleration],
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [PIN]}]}}
            },
            "containers": [
                {
                    "name": "train",
                    "image": "train:1",
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "env": [
                        {"name": "GOODPUT_JOB", "value": "digits"},
                        {"name": "GOODPUT_NAMESPACE", "value": "team-a"},
                        {"name": "GOODPUT_ATTEMPT", "value": "3"},
                        {"name": "GOODPUT_INCARNATION", "value": "0"},
                        {"name": "GOODPUT_ROLE", "value": "worker"},
                        {"name": "GOODPUT_ROLE_RANK", "value": "2"},
                        {"name": "GOODPUT_RANK", "value": "2"},
                        {"name": "GOODPUT_WORLD_SIZE", "value": "4"},
                        {
                            "name": "GOODPUT_COORDINATOR",
                            "value": "digits-a3-worker-0.digits-ranks.team-a.svc:29400",
                        },
                        {"name": "GOODPUT_RESUME_STEP", "value": "120"},
                        {
                            "name": "GOODPUT_CHECKPOINT_DIR",
                            "value": "/ckpt/runs/digits-0b9f6d1c",
                        },
                        {"name": "GOODPUT_CHECKPOINT_INTERVAL_SECONDS", "value": "600"},
                        {"name": "GOODPUT_CHECKPOINT_GRACE_SECONDS", "value": "60"},
                        {
                            "name": "GOODPUT_PROGRESS_URL",
                            "value": "https://goodput-progress.goodput.svc:8443"
                            "/v1/namespaces/team-a/trainingjobs/digits/progress",
                        },
                        {
                            "name": "GOODPUT_PROGRESS_TOKEN_FILE",
                            "value": "/var/run/secrets/goodput.dev/token",
                        },
                        {
                            "name": "GOODPUT_PROGRESS_CA_FILE",
                            "value": "/var/run/secrets/goodput.dev/ca.crt",
                        },
                    ],
                    "volumeMounts": [
                        {"name": "goodput-checkpoint", "mountPath": "/ckpt"},
                        {
                            "name": "goodput-progress",
                            "mountPath": "/var/run/secrets/goodput.dev",
                            "readOnly": True,
                        },
                    ],
                }
            ],
            "volumes": [
                {
                    "name": "goodput-checkpoint",
                    "persistentVolumeClaim": {"claimName": "checkpoints"},
                },
                {
                    "name": "goodput-progress",
                    "projected": {
                        "sources": [
                            {
                                "serviceAccountToken": {
                                    "audience": "goodput.dev/progress",
                                    "expirationSeconds": 3600,
                                    "path": "token",
                                }
                            },
                            {
                                "downwardAPI": {
                                    "items": [
                                        {
                                            "path": "ca.crt",
                                            "fieldRef": {
                                                "fieldPath": "metadata.annotations"
                                                "['goodput.dev/progress-ca']"
                                            },
                                        }
                                    ]
                                }
                            },
                        ]
                    },
                },
            ],
        },
    }


def test_without_checkpoint_assignment_and_progress_nothing_of_them_is_there(
    make_job: JobFactory,
) -> None:
    pod = build_pod(make_job(), ACTION, None, None)
    assert set(pod["spec"]) == {"restartPolicy", "hostname", "subdomain", "affinity", "containers"}
    assert "goodput.dev/progress-ca" not in pod["metadata"]["annotations"]
    names = environment(pod["spec"]["containers"][0])
    assert not {name for name in names if "CHECKPOINT" in name or "PROGRESS" in name}
    assert names["GOODPUT_RESUME_STEP"] == "0"


def test_the_resume_step_of_another_attempt_does_not_count(make_job: JobFactory) -> None:
    placement = {
        "attempt": 2,
        "nodes": [],
        "roles": [],
        "resumeStep": 120,
        "committedAt": "2026-01-31T08:00:00Z",
    }
    pod = build_pod(make_job(status={"placement": placement}), ACTION, None, None)
    assert environment(pod["spec"]["containers"][0])["GOODPUT_RESUME_STEP"] == "0"


def test_ranks_count_on_over_the_roles(make_job: JobFactory) -> None:
    action = CreatePod(attempt=1, role="eval", rank=0, node="n1")
    names = environment(build_pod(make_job(), action, None, None)["spec"]["containers"][0])
    assert (names["GOODPUT_RANK"], names["GOODPUT_ROLE_RANK"]) == ("4", "0")
    assert names["GOODPUT_WORLD_SIZE"] == "5"
    assert names["GOODPUT_COORDINATOR"].startswith("digits-a1-worker-0.")


@pytest.mark.parametrize("framework", ["PyTorch", "JAX", "TensorFlow"])
def test_ranks_are_told_of_the_gang_that_was_placed(framework: str, make_job: JobFactory) -> None:
    """Not of what the spec asks for, which may be more, or have been changed since."""
    roles = [{"name": "worker", "nodes": "0*2"}, {"name": "eval", "nodes": "1"}]
    placement = {
        "attempt": 1,
        "nodes": ["n1", "n2"],
        "roles": roles,
        "committedAt": "2026-01-31T08:00:00Z",
    }
    job = make_job(status={"placement": placement}, framework=framework)
    action = CreatePod(attempt=1, role="eval", rank=0, node="n2")
    names = environment(build_pod(job, action, None, None)["spec"]["containers"][0])
    assert (names["GOODPUT_RANK"], names["GOODPUT_WORLD_SIZE"]) == ("2", "3")
    if framework == "PyTorch":
        assert (names["RANK"], names["WORLD_SIZE"], names["PET_NNODES"]) == ("2", "3", "3")
    elif framework == "JAX":
        assert (names["JAX_PROCESS_ID"], names["JAX_NUM_PROCESSES"]) == ("2", "3")
    else:
        assert names["TF_CONFIG"].count("digits-a1-worker-") == 2


def test_the_pods_of_a_gang_are_built_from_one_reading_of_its_placement(
    make_job: JobFactory,
) -> None:
    """Else the work for a gang grows with the square of its size."""
    placement = {
        "attempt": 1,
        "nodes": [f"built-once-{number}" for number in range(200)],
        "roles": [{"name": "worker", "nodes": ",".join(map(str, range(200)))}],
        "committedAt": "2026-01-31T08:00:00Z",
    }
    job = make_job(status={"placement": placement}, framework="JAX")
    before = codec._decode_runs.cache_info().misses
    for rank in range(200):
        action = CreatePod(attempt=1, role="worker", rank=rank, node=f"built-once-{rank}")
        names = environment(build_pod(job, action, None, None)["spec"]["containers"][0])
        assert names["GOODPUT_RANK"] == str(rank)
    assert codec._decode_runs.cache_info().misses == before + 1


HOST = "digits-a3-worker-0.digits-ranks.team-a.svc"

FRAMEWORKS: dict[str, dict[str, str]] = {
    "PyTorch": {
        "MASTER_ADDR": HOST,
        "MASTER_PORT": "29400",
        "NODE_RANK": "2",
        "NNODES": "5",
        "RANK": "2",
        "WORLD_SIZE": "5",
        "PET_NNODES": "5",
        "PET_NODE_RANK": "2",
        "PET_MASTER_ADDR": HOST,
        "PET_MASTER_PORT": "29400",
    },
    "JAX": {
        "JAX_COORDINATOR_ADDRESS": f"{HOST}:29400",
        "JAX_NUM_PROCESSES": "5",
        "JAX_PROCESS_ID": "2",
    },
    "TensorFlow": {
        "TF_CONFIG": '{"cluster":{"worker":["digits-a3-worker-0.digits-ranks.team-a.svc:29400",'
        '"digits-a3-worker-1.digits-ranks.team-a.svc:29400",'
        '"digits-a3-worker-2.digits-ranks.team-a.svc:29400",'
        '"digits-a3-worker-3.digits-ranks.team-a.svc:29400"],'
        '"eval":["digits-a3-eval-0.digits-ranks.team-a.svc:29400"]},'
        '"task":{"type":"worker","index":2}}'
    },
    "Plain": {},
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_frameworks_own_rendezvous(framework: str, make_job: JobFactory) -> None:
    pod = build_pod(make_job(framework=framework), ACTION, None, None)
    names = environment(pod["spec"]["containers"][0])
    own = {name: value for name, value in names.items() if not name.startswith("GOODPUT_")}
    assert own == FRAMEWORKS[framework]


def test_a_port_named_coordinator_moves_the_rendezvous(make_job: JobFactory) -> None:
    ports = [{"containerPort": 80}, {"name": "coordinator", "containerPort": 12355}]
    job = make_job(roles=one_role(containers(ports=ports)), framework="PyTorch")
    names = environment(build_pod(job, ACTION, None, None)["spec"]["containers"][0])
    assert names["MASTER_PORT"] == "12355"
    assert names["GOODPUT_COORDINATOR"].endswith(":12355")


def test_what_the_template_sets_wins(make_job: JobFactory) -> None:
    spec = containers(
        env=[{"name": "MASTER_PORT", "value": "1"}, {"name": "ME", "value": "$(GOODPUT_RANK)"}],
        terminationMessagePolicy="File",
        volumeMounts=[{"name": "own", "mountPath": "/ckpt/"}],
    )
    metadata = {
        "labels": {"team": "vision"},
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    }
    checkpoint = {"uri": "/ckpt", "volume": {"claimName": "c", "mountPath": "/ckpt"}}
    job = make_job(roles=one_role(spec, metadata), framework="PyTorch", checkpoint=checkpoint)
    pod = build_pod(job, ACTION, None, None)
    (container,) = pod["spec"]["containers"]
    assert [v["value"] for v in container["env"] if v["name"] == "MASTER_PORT"] == ["1"]
    assert container["env"][-2:] == spec["containers"][0]["env"]
    assert container["terminationMessagePolicy"] == "File"
    assert container["volumeMounts"] == [{"name": "own", "mountPath": "/ckpt/"}]
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"] == metadata["annotations"]


def test_every_container_is_told_and_mounts(make_job: JobFactory) -> None:
    spec = {
        "initContainers": [{"name": "restore", "image": "i"}],
        "containers": [{"name": "train", "image": "i"}, {"name": "logs", "image": "i"}],
    }
    checkpoint = {"uri": "/ckpt", "volume": {"claimName": "c", "mountPath": "/ckpt"}}
    job = make_job(roles=one_role(spec), checkpoint=checkpoint)
    pod = build_pod(job, ACTION, None, PROGRESS)
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        assert environment(container)["GOODPUT_RANK"] == "2"
        assert [mount["name"] for mount in container["volumeMounts"]] == [
            "goodput-checkpoint",
            "goodput-progress",
        ]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize(
    ("template", "checkpoint", "expected"),
    [
        (None, None, None),
        (5, None, 5),
        (None, 10, 30),
        (None, 90, 90),
        (100, 90, 100),
        (5, 90, 90),
        (0, 0, 0),
    ],
)
def test_grace_is_enough_for_a_last_save(
    template: int | None, checkpoint: int | None, expected: int | None, make_job: JobFactory
) -> None:
    spec = containers()
    if template is not None:
        spec["terminationGracePeriodSeconds"] = template
    job = make_job(
        roles=one_role(spec),
        checkpoint=None
        if checkpoint is None
        else {"uri": "gs://b/x", "gracePeriodSeconds": checkpoint},
    )
    pod = build_pod(job, ACTION, None, None)
    assert pod["spec"].get("terminationGracePeriodSeconds") == expected


def test_a_bucket_keeps_its_scheme(make_job: JobFactory) -> None:
    pod = build_pod(make_job(checkpoint={"uri": "gs://bucket/runs"}), ACTION, None, None)
    names = environment(pod["spec"]["containers"][0])
    assert names["GOODPUT_CHECKPOINT_DIR"] == "gs://bucket/runs/digits-0b9f6d1c"
    assert "volumes" not in pod["spec"]


def test_the_root_directory_as_uri_has_one_slash(make_job: JobFactory) -> None:
    pod = build_pod(make_job(checkpoint={"uri": "/"}), ACTION, None, None)
    names = environment(pod["spec"]["containers"][0])
    assert names["GOODPUT_CHECKPOINT_DIR"] == "/digits-0b9f6d1c"


def test_a_toleration_that_the_template_has_is_not_added_twice(make_job: JobFactory) -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    job = make_job(roles=one_role({**containers(), "tolerations": [toleration]}))
    assignment = PodSetAssignment("worker", 4, {}, (toleration, {"key": "spot"}))
    pod = build_pod(job, ACTION, assignment, None)
    assert pod["spec"]["tolerations"] == [toleration, {"key": "spot"}]


def test_a_template_of_300_kb_keeps_every_byte(make_job: JobFactory) -> None:
    env = [{"name": f"V{i}", "value": "x" * 1000} for i in range(300)]
    job = make_job(roles=one_role(containers(env=env)))
    pod = build_pod(job, ACTION, None, PROGRESS)
    assert pod["spec"]["containers"][0]["env"][-300:] == env


def test_unknown_fields_survive(make_job: JobFactory) -> None:
    spec = {**containers(fieldOfTheFuture={"a": [1]}), "schedulingGroup": {"name": "g"}}
    pod = build_pod(make_job(roles=one_role(spec)), ACTION, None, None)
    assert pod["spec"]["containers"][0]["fieldOfTheFuture"] == {"a": [1]}
    assert pod["spec"]["schedulingGroup"] == {"name": "g"}


def test_an_unreadable_spec_or_role_is_an_error(make_job: JobFactory) -> None:
    with pytest.raises(ValueError, match=r"has no readable spec: spec\.roles"):
        build_pod(make_job(roles=[]), ACTION, None, None)
    other = CreatePod(attempt=1, role="other", rank=0, node="n1")
    with pytest.raises(ValueError, match="'other' is none of worker, eval"):
        build_pod(make_job(), other, None, None)


REQUIREMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["zone", "gpu"]),
            "operator": st.just("In"),
            "values": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2),
        }
    ),
    max_size=2,
)
TERMS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}
    ),
    max_size=3,
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({"affinity": None}),
    st.just({"affinity": {"podAffinity": {"x": 1}}}),
    st.just({"affinity": {"nodeAffinity": {REQUIRED: None}}}),
    TERMS.map(
        lambda terms: {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    ),
)


def terms_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    return list(required.get("nodeSelectorTerms") or [])


@given(SPECS)
def test_every_term_that_can_match_is_pinned_and_keeps_what_it_asked(spec: dict[str, Any]) -> None:
    before = copy.deepcopy(spec)
    pin_to_node(spec, "n1")
    old, new = terms_of(before), terms_of(spec)
    assert len(new) == max(1, len(old))
    for was, now in zip(old or [{"matchFields": [{}]}], new, strict=True):
        if not was.get("matchExpressions") and not was.get("matchFields"):
            assert now == was, "an empty term matches nothing, and must not begin to"
            continue
        assert now["matchFields"][-1] == PIN
        if old:
            assert now["matchFields"][:-1] == (was.get("matchFields") or [])
        assert now.get("matchExpressions") == was.get("matchExpressions")
    other = {k: v for k, v in (before.get("affinity") or {}).items() if k != "nodeAffinity"}
    assert {k: v for k, v in spec["affinity"].items() if k != "nodeAffinity"} == other


TEMPLATES = st.fixed_dictionaries(
    {"containers": st.just([{"name": "c", "image": "i"}])},
    optional={
        "affinity": st.just(
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"k": 1}]}]}}}
        ),
        "nodeSelector": st.just({"zone": "a"}),
        "tolerations": st.just([{"key": "x"}]),
        "volumes": st.just([{"name": "v", "emptyDir": {}}]),
        "initContainers": st.just([{"name": "i", "env": [{"name": "RANK", "value": "9"}]}]),
    },
)


@given(spec=TEMPLATES, framework=st.sampled_from(sorted(FRAMEWORKS)))
def test_the_template_is_never_changed(
    make_job: JobFactory, spec: dict[str, Any], framework: str
) -> None:
    checkpoint = {"uri": "/ckpt", "volume": {"claimName": "c", "mountPath": "/ckpt"}}
    job = make_job(roles=one_role(spec), framework=framework, checkpoint=checkpoint)
    assert job.spec is not None
    before = copy.deepcopy(job.spec.roles[0].template)
    assignment = PodSetAssignment("worker", 4, {"a": "b"}, ({"key": "y"},), {"l": "1"}, {"m": "2"})
    first = build_pod(job, ACTION, assignment, PROGRESS)
    assert job.spec.roles[0].template == before
    assert build_pod(job, ACTION, assignment, PROGRESS) == first


@given(
    job_name=st.from_regex(r"[a-z][a-z0-9-]{0,47}[a-z0-9]", fullmatch=True),
    attempt=st.integers(1, 99_999),
    rank=st.integers(0, 9_999),
    data=st.data(),
)
def test_names_that_the_api_server_lets_in_give_host_names(
    make_job: JobFactory, job_name: str, attempt: int, rank: int, data: st.DataObject
) -> None:
    role = data.draw(st.from_regex(rf"[a-z0-9]{{1,{max(1, 50 - len(job_name))}}}", fullmatch=True))
    if len(job_name) + len(role) > 50:
        return
    roles = [{"name": role, "replicas": 10_000, "template": {"spec": containers()}}]
    job = make_job(job_name, roles=roles)
    pod = build_pod(job, CreatePod(attempt, role, rank, "n1"), None, None)
    assert len(pod["metadata"]["name"]) <= 63
    assert pod["metadata"]["name"] == pod["spec"]["hostname"]
    assert len(pod["spec"]["subdomain"]) <= 63
    assert all(len(value) <= 63 for value in pod["metadata"]["labels"].values())


def test_what_is_built_is_read_back(make_job: JobFactory) -> None:
    view = parse_pod(build_pod(make_job(), ACTION, None, None))
    assert view is not None
    assert (view.job, view.job_uid) == ("digits", UID)
    assert (view.attempt, view.role, view.rank) == (3, "worker", 2)
    assert view.pinned_node == "n1"
