import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from goodput_operator.builders.workload import (
    PriorityClass,
    build_workload,
    priority_class,
    workload_name,
)
from goodput_operator.domain.model import JobView

JobFactory = Callable[..., JobView]
UID = "0b9f6d1c-5f0e-4d3c-9f43-0d6f0a1b2c3d"


def role(spec: dict[str, Any], name: str = "worker", **metadata: Any) -> dict[str, Any]:
    template: dict[str, Any] = {"spec": spec}
    if metadata:
        template["metadata"] = metadata
    return {"name": name, "replicas": 2, "template": template}


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "train", "image": "train:1", "env": [{"name": "A", "value": "1"}], **fields}


def pod_sets(job: JobView) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = build_workload(job, "wl", priority=0)["spec"]["podSets"]
    return built


def test_the_whole_workload(make_job: JobFactory, owner: dict[str, Any]) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    assert build_workload(make_job(), "tj-digits-0123456789") == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "tj-digits-0123456789",
            "namespace": "team-a",
            "labels": {"goodput.dev/job": "digits", "goodput.dev/job-uid": UID},
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": "gpus",
            "podSets": [
                {
                    "name": "worker",
                    "count": 4,
                    "template": {
                        "spec": {
                            "containers": [{"name": "train", **limits}],
                            "restartPolicy": "Never",
                        }
                    },
                },
                {
                    "name": "eval",
                    "count": 1,
                    "template": {
                        "spec": {
                            "containers": [{"name": "train", **limits}],
                            "restartPolicy": "Never",
                        }
                    },
                },
            ],
        },
    }


def test_pod_sets_carry_what_scheduling_needs_and_no_more(make_job: JobFactory) -> None:
    needed = {
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {"x": 1}},
        "tolerations": [{"key": "k"}],
        "runtimeClassName": "gvisor",
        "overhead": {"cpu": "100m"},
        "schedulerName": "other",
        "resources": {"requests": {"cpu": "2"}},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    sidecar = {"name": "s", "image": "s", "restartPolicy": "Always", "command": ["x"]}
    spec = {
        **needed,
        "initContainers": [sidecar],
        "containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 5,
    }
    (pod_set,) = pod_sets(make_job(roles=[role(spec, labels={"team": "x"})]))
    assert pod_set["template"] == {
        "spec": {
            **needed,
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "train"}],
            "restartPolicy": "Never",
        }
    }


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        (
            {"podset-required-topology": "rack"},
            {"required": "rack", "podIndexLabel": "goodput.dev/rank"},
        ),
        (
            {"podset-preferred-topology": "block", "podset-group-name": "g"},
            {
                "preferred": "block",
                "podSetGroupName": "g",
                "podIndexLabel": "goodput.dev/rank",
            },
        ),
        (
            {"podset-unconstrained-topology": "true"},
            {"unconstrained": True, "podIndexLabel": "goodput.dev/rank"},
        ),
        (
            {"podset-slice-required-topology": "host", "podset-slice-size": "4"},
            {
                "podSetSliceRequiredTopology": "host",
                "podSetSliceSize": 4,
                "podIndexLabel": "goodput.dev/rank",
            },
        ),
        ({"podset-unconstrained-topology": "perhaps"}, None),
        ({"podset-group-name": "g"}, None),
    ],
)
def test_topology_annotations_become_a_request(
    annotations: dict[str, str], request_: dict[str, Any] | None, make_job: JobFactory
) -> None:
    kueue = {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    roles = [role({"containers": [container()]}, annotations={**kueue, "other": "x"})]
    (pod_set,) = pod_sets(make_job(roles=roles))
    assert pod_set["template"]["metadata"] == {"annotations": kueue}
    assert pod_set.get("topologyRequest") == request_


LABELLED = {
    "kueue.x-k8s.io/queue-name": "gpus",
    "kueue.x-k8s.io/priority-class": "high",
}
HIGH = PriorityClass("kueue.x-k8s.io", "WorkloadPriorityClass", "high")
PODS = PriorityClass("scheduling.k8s.io", "PriorityClass", "pods-first")


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        ({}, (None, None), None),
        (LABELLED, (None, None), HIGH),
        (LABELLED, ("pods-first", None), HIGH),
        ({}, (None, "pods-first"), PODS),
        ({}, ("pods-first", "pods-second"), PODS),
    ],
)
def test_priority_is_that_of_the_label_else_of_the_first_template(
    labels: dict[str, str],
    names: tuple[str | None, str | None],
    expected: PriorityClass | None,
    make_job: JobFactory,
) -> None:
    roles = [
        role({"containers": [container()], "priorityClassName": name}, f"r{i}")
        for i, name in enumerate(names)
    ]
    job = make_job(labels=labels, roles=roles)
    assert priority_class(job) == expected
    spec = build_workload(job, "wl", priority=1000)["spec"]
    assert spec["priority"] == 1000
    assert spec.get("priorityClassRef") == (expected._asdict() if expected else None)
    if expected is not None:
        with pytest.raises(ValueError, match=f"value of {expected.kind} {expected.name}"):
            build_workload(job, "wl")


def test_a_job_without_queue_names_none(make_job: JobFactory) -> None:
    assert "queueName" not in build_workload(make_job(labels={}), "wl")["spec"]


def test_the_template_is_neither_changed_nor_shared(make_job: JobFactory) -> None:
    spec = {"containers": [container(resources={"limits": {"cpu": 1}})], "nodeSelector": {"a": "b"}}
    job = make_job(roles=[role(spec)])
    before = copy.deepcopy(spec)
    (pod_set,) = pod_sets(job)
    pod_set["template"]["spec"]["nodeSelector"]["c"] = "d"
    pod_set["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = 9
    assert job.spec is not None
    assert job.spec.roles[0].template["spec"] == before


def test_a_template_of_300_kb_makes_a_small_workload(make_job: JobFactory) -> None:
    env = [{"name": f"V{i}", "value": "x" * 1000} for i in range(300)]
    job = make_job(roles=[role({"containers": [container(env=env)]})])
    assert len(json.dumps(build_workload(job, workload_name(job)))) < 2000


def test_a_role_that_may_be_smaller_is_admitted_in_part(make_job: JobFactory) -> None:
    worker = make_job().spec.roles[0].model_dump(by_alias=True)
    roles = [{**worker, "minReplicas": 2}]
    job = make_job(roles=roles)
    (pod_set,) = build_workload(job, "wl")["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 2)
    whole = make_job(roles=[{**roles[0], "minReplicas": None}])
    assert "minCount" not in build_workload(whole, "wl")["spec"]["podSets"][0]
    assert workload_name(job) != workload_name(whole)


def test_one_that_asks_for_more_names_what_it_replaces(make_job: JobFactory) -> None:
    worker = make_job().spec.roles[0].model_dump(by_alias=True)
    job = make_job(roles=[{**worker, "minReplicas": 2}])
    made = build_workload(job, "wl-g1", replaces="wl", least=4)
    assert made["metadata"]["annotations"] == {
        "kueue.x-k8s.io/workload-slice-replacement-for": "team-a/wl"
    }
    (pod_set,) = made["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 4)
    assert "annotations" not in build_workload(job, "wl")["metadata"]


def test_the_name_changes_with_the_pod_sets_and_fits_in_a_label(make_job: JobFactory) -> None:
    job = make_job("a" * 49)
    assert len(workload_name(job)) <= 63
    assert workload_name(job) == workload_name(make_job("a" * 49))
    assert workload_name(job) != workload_name(make_job("a" * 49, roles=[role({})]))
