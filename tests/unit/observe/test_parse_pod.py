from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.domain.model import ContainerExit
from goodput_operator.domain.resources import Resources
from goodput_operator.observe.pod import parse_pod, usage_of

LABELS = {
    "goodput.dev/job": "digits",
    "goodput.dev/job-uid": "uid-1",
    "goodput.dev/attempt": "3",
    "goodput.dev/role": "worker",
    "goodput.dev/rank": "7",
}
OWNER = {"kind": "TrainingJob", "uid": "uid-1", "controller": True}


def pin(*names: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def pod(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return {
        "metadata": {
            "name": "digits-a3-worker-7",
            "namespace": "team-a",
            "uid": "pod-1",
            "resourceVersion": "9",
            "creationTimestamp": "2026-01-31T08:00:00Z",
            "labels": LABELS,
            "ownerReferences": [OWNER],
            **metadata,
        },
        "spec": {"containers": [container], "affinity": pin("n1"), **(spec or {})},
        "status": {"phase": "Pending", **(status or {})},
    }


def test_reads_a_running_rank() -> None:
    raw = pod(
        {"nodeName": "n1"},
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )
    view = parse_pod(raw)
    assert view is not None
    assert (view.job, view.job_uid, view.attempt, view.role, view.rank) == (
        "digits", "uid-1", 3, "worker", 7,
    )  # fmt: skip
    assert (view.phase, view.ready, view.node, view.pinned_node) == ("Running", True, "n1", "n1")
    assert view.requests == Resources({"nvidia.com/gpu": 2000, "pods": 1000})
    assert not view.captured
    assert not view.terminal
    assert (view.disruption, view.unschedulable_message, view.waiting) == (None, None, None)


def test_the_operators_pin_is_the_last_one() -> None:
    view = parse_pod(pod({"affinity": pin("users", "ours")}))
    assert view is not None
    assert view.pinned_node == "ours"


def test_a_pod_that_is_being_deleted() -> None:
    view = parse_pod(pod(deletionTimestamp="2026-01-31T08:00:30Z"))
    assert view is not None
    assert view.deleting


def terminated(name: str, code: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error", **more}}}


def test_tells_how_containers_ended() -> None:
    raw = pod(
        status={
            "phase": "Failed",
            "reason": "Evicted",
            "message": "low on memory",
            "initContainerStatuses": [terminated("restore", 0), terminated("check", 2)],
            "containerStatuses": [
                terminated("train", 137, message="killed", finishedAt="2026-01-31T08:00:00Z"),
                {"name": "logs", "state": {"running": {}}},
            ],
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            ],
        }
    )
    view = parse_pod(raw)
    assert view is not None
    assert view.terminal
    assert (view.status_reason, view.status_message) == ("Evicted", "low on memory")
    assert view.disruption == "TerminationByKubelet"
    assert view.exits == (
        ContainerExit("train", 137, "Error", "killed", 1769846400.0),
        ContainerExit("check", 2, "Error", "", None),
    )


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ({"reason": "ContainerCreating"}, None),
        ({"reason": "PodInitializing"}, None),
        ({"reason": "ImagePullBackOff", "message": "no such tag"}, "ImagePullBackOff: no such tag"),
        ({"reason": "CreateContainerConfigError"}, "CreateContainerConfigError"),
    ],
)
def test_tells_why_a_container_waits(waiting: dict[str, str], expected: str | None) -> None:
    statuses = [{"name": "train", "state": {"waiting": waiting}}]
    view = parse_pod(pod(status={"containerStatuses": statuses}))
    assert view is not None
    assert view.waiting == expected


def test_tells_why_it_is_not_scheduled() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    view = parse_pod(pod(status={"conditions": [condition]}))
    assert view is not None
    assert view.unschedulable_message == "0/3 nodes are available"


@pytest.mark.parametrize(
    "raw",
    [
        pod({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}),
        pod(labels={**LABELS, "kueue.x-k8s.io/managed": "true"}),
    ],
)
def test_recognises_a_pod_that_kueue_took_for_its_own(raw: dict[str, Any]) -> None:
    view = parse_pod(raw)
    assert view is not None
    assert view.captured


@pytest.mark.parametrize(
    "raw",
    [
        pod({"schedulingGates": [{"name": "example.com/wait"}]}),
        pod(labels={**LABELS, "kueue.x-k8s.io/queue-name": "default"}),
    ],
    ids=["somebody else's gate", "a label of the job's own template"],
)
def test_what_does_not_come_from_kueue_is_no_sign_of_it(raw: dict[str, Any]) -> None:
    view = parse_pod(raw)
    assert view is not None
    assert not view.captured


@pytest.mark.parametrize("label", sorted(LABELS))
def test_without_its_labels_it_is_another_pod(label: str) -> None:
    raw = pod(labels={k: v for k, v in LABELS.items() if k != label})
    needed = label in ("goodput.dev/job-uid", "goodput.dev/attempt", "goodput.dev/rank")
    assert (parse_pod(raw) is None) == needed


@pytest.mark.parametrize(
    "owners",
    [[], [{**OWNER, "uid": "uid-2"}], [{**OWNER, "controller": False}]],
    ids=["none", "another", "not its controller"],
)
def test_labels_that_anybody_can_write_make_no_rank(owners: list[dict[str, Any]]) -> None:
    assert parse_pod(pod(ownerReferences=owners)) is None


def test_how_a_sidecar_ends_says_nothing_about_the_rank() -> None:
    ended = {"state": {"terminated": {"exitCode": 9}}}
    spec = {"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "fetch"}]}
    statuses = [{"name": "side", **ended}, {"name": "fetch", **ended}]
    view = parse_pod(pod(spec, {"initContainerStatuses": statuses}))
    assert view is not None
    assert [each.container for each in view.exits] == ["fetch"]


@pytest.mark.parametrize("attempt", ["", "-1", "x", "1.5", "²"])
def test_a_number_that_is_none_makes_it_another_pod(attempt: str) -> None:
    assert parse_pod(pod(labels={**LABELS, "goodput.dev/attempt": attempt})) is None


FOREIGN = pod({"nodeName": "n1"}, {"phase": "Running"}, labels={"app": "web"})


def test_a_pod_of_others_takes_its_requests_from_its_node() -> None:
    assert usage_of(FOREIGN) == ("n1", Resources({"nvidia.com/gpu": 2000, "pods": 1000}))


@pytest.mark.parametrize(
    "raw",
    [
        pod({"nodeName": "n1"}, {"phase": "Running"}),
        pod(labels={"app": "web"}),
        pod({"nodeName": "n1"}, {"phase": "Succeeded"}, labels={}),
        pod({"nodeName": "n1"}, {"phase": "Failed"}, labels={}),
        {},
    ],
    ids=["ours", "not bound", "succeeded", "failed", "empty"],
)
def test_takes_nothing(raw: dict[str, Any]) -> None:
    assert usage_of(raw) is None


def test_a_spec_that_cannot_be_read_still_is_a_pod() -> None:
    raw = {"spec": {"nodeName": "n1", "containers": [3]}}
    assert usage_of(raw) == ("n1", Resources({"pods": 1000}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "state", "terminated", "conditions", "containerStatuses"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(JSON, JSON)
def test_never_raises(spec: Any, status: Any) -> None:
    metadata = {"labels": LABELS, "ownerReferences": [OWNER]}
    raw = {"metadata": metadata, "spec": spec, "status": status}
    assert parse_pod(raw) is not None
    usage_of({"spec": spec, "status": status})
