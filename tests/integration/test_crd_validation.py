"""Bad input is refused by the real API server, with a message that names the field and the remedy.

Nothing here needs the operator: the jobs have no queue label, and so nothing of them ever starts.
"""

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

Manifest = dict[str, Any]
Change = Callable[[Manifest], Any]

NAME = "crd-validation"


class Kubectl(Protocol):
    """What these tests need of the fixture ``kubectl``."""

    def apply(self, manifest: Manifest) -> subprocess.CompletedProcess[str]:
        """``kubectl apply -f -``; never raises for a refused manifest."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``kubectl ARGUMENTS``; never raises for an exit status."""


def good() -> Manifest:
    """A manifest that the API server accepts, with most fields set."""
    return {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "roles": [
                {
                    "name": "worker",
                    "replicas": 2,
                    "template": {
                        "metadata": {"labels": {"team": "vision"}},
                        "spec": {
                            "containers": [
                                {
                                    "name": "train",
                                    "image": "registry.example/train:1",
                                    "env": [{"name": "SEED", "value": "7"}],
                                    "resources": {
                                        "requests": {"cpu": "500m", "memory": "1Gi"},
                                        "limits": {"nvidia.com/gpu": 1},
                                    },
                                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                                }
                            ],
                            "volumes": [{"name": "scratch", "emptyDir": {}}],
                        },
                    },
                }
            ],
            "checkpoint": {
                "uri": "/ckpt/runs",
                "volume": {"claimName": "checkpoints", "mountPath": "/ckpt"},
                "gracePeriodSeconds": 60,
            },
        },
    }


def role(job: Manifest) -> Any:
    return job["spec"]["roles"][0]


def pod(job: Manifest) -> Any:
    return role(job)["template"]["spec"]


def container(job: Manifest) -> Any:
    return pod(job)["containers"][0]


def metadata(job: Manifest) -> Any:
    return role(job)["template"]["metadata"]


def mounts(*paths: str) -> Manifest:
    return {"volumeMounts": [{"name": f"m{i}", "mountPath": path} for i, path in enumerate(paths)]}


def second_role(**changes: Any) -> Change:
    return lambda job: job["spec"]["roles"].append({**copy.deepcopy(role(job)), **changes})


def put(part: Callable[[Manifest], Any], **fields: Any) -> Change:
    return lambda job: part(job).update(copy.deepcopy(fields))


def spec(job: Manifest) -> Any:
    return job["spec"]


def checkpoint(job: Manifest) -> Any:
    return job["spec"]["checkpoint"]


def on_path_without_volume(uri: str, *paths: str) -> Change:
    """A checkpoint on a path, no checkpoint volume, and these mounts in the template."""

    def change(job: Manifest) -> None:
        job["spec"]["checkpoint"] = {"uri": uri}
        container(job).update(mounts(*paths))
        pod(job)["volumes"] = [{"name": f"m{i}", "emptyDir": {}} for i in range(len(paths))]

    return change


def tolerates(**fields: Any) -> Change:
    return put(spec, faultTolerance=fields)


REFUSED: dict[str, tuple[Change, tuple[str, ...]]] = {
    "more minReplicas than replicas": (
        put(role, minReplicas=3),
        ("spec.roles[0].minReplicas", "minReplicas must not be more than replicas"),
    ),
    "no rank at least": (
        put(role, minReplicas=0),
        ("spec.roles[0].minReplicas", "greater than or equal to 1"),
    ),
    "two roles that may be smaller": (
        lambda job: (put(role, minReplicas=1)(job), second_role(name="eval")(job)),
        ("spec.roles", "only one role may set minReplicas", "remove it"),
    ),
    "rule without a mark": (
        tolerates(rules=[{"action": "Fail", "roles": ["worker"], "exitCodes": []}]),
        ("spec.faultTolerance.rules[0]", "exitCodes, signals, reasons or podConditions"),
    ),
    "rule for a role that is not there": (
        tolerates(rules=[{"action": "Fail", "roles": ["chief"], "exitCodes": [1]}]),
        ("spec.faultTolerance.rules", "correct its name"),
    ),
    "rule without an action": (
        tolerates(rules=[{"exitCodes": [1]}]),
        ("spec.faultTolerance.rules[0].action", "Required"),
    ),
    "rule with an unknown action": (
        tolerates(rules=[{"action": "Ignore", "exitCodes": [1]}]),
        ("spec.faultTolerance.rules[0].action", "RestartNotCounted"),
    ),
    "rule for success": (
        tolerates(rules=[{"action": "Fail", "exitCodes": [0]}]),
        ("spec.faultTolerance.rules[0].exitCodes[0]", "greater than or equal to 1"),
    ),
    "rule with a number for a signal": (
        tolerates(rules=[{"action": "Fail", "signals": ["11"]}]),
        ("spec.faultTolerance.rules[0].signals[0]", "SIGSEGV"),
    ),
    "17 rules": (
        tolerates(rules=[{"action": "Fail", "exitCodes": [n + 1]} for n in range(17)]),
        ("spec.faultTolerance.rules", "at most 16"),
    ),
    "forgiveness before it is earned": (
        tolerates(forgiveAfterSeconds=-1),
        ("spec.faultTolerance.forgiveAfterSeconds", "greater than or equal to 0"),
    ),
    "no roles field": (lambda job: spec(job).pop("roles"), ("spec.roles", "Required")),
    "no roles": (put(spec, roles=[]), ("spec.roles", "at least 1")),
    "two roles of one name": (second_role(), ("spec.roles", "uplicate")),
    "17 roles": (
        lambda job: spec(job).update(
            roles=[{**copy.deepcopy(role(job)), "name": f"r{i}"} for i in range(17)]
        ),
        ("spec.roles", "16"),
    ),
    "replicas 0": (put(role, replicas=0), ("spec.roles[0].replicas", "greater than or equal to 1")),
    "misspelt field": (put(role, replica=2), ("spec.roles[", "replica")),
    "replicas negative": (
        put(role, replicas=-1),
        ("spec.roles[0].replicas", "greater than or equal to 1"),
    ),
    "replicas as text": (put(role, replicas="2"), ("spec.roles[", "].replicas")),
    "role name with capitals": (put(role, name="Worker"), ("spec.roles[0].name",)),
    "unknown framework": (put(spec, framework="Caffe"), ("spec.framework", "PyTorch")),
    "no template": (lambda job: role(job).pop("template"), ("template", "Required")),
    "template without spec": (put(role, template={}), ("template.spec", "Required")),
    "no containers field": (
        lambda job: pod(job).pop("containers"),
        ("template.spec.containers", "Required"),
    ),
    "no containers": (put(pod, containers=[]), ("template.spec.containers", "at least 1")),
    "two containers of one name": (
        lambda job: pod(job)["containers"].append(container(job)),
        ("template.spec.containers", "uplicate"),
    ),
    "container without image": (
        lambda job: container(job).pop("image"),
        ("containers[0].image", "Required"),
    ),
    "restart policy OnFailure": (
        put(pod, restartPolicy="OnFailure"),
        ("template.spec.restartPolicy", "must be Never, or absent", "faultTolerance"),
    ),
    "restart policy Always": (put(pod, restartPolicy="Always"), ("must be Never",)),
    "restart policy of a container": (
        put(container, restartPolicy="Always"),
        ("containers", "restartPolicy", "init container"),
    ),
    "node name": (put(pod, nodeName="n1"), ("nodeName must be absent", "nodeSelector")),
    "host name": (put(pod, hostname="x"), ("hostname and subdomain must be absent",)),
    "subdomain": (put(pod, subdomain="x"), ("hostname and subdomain must be absent",)),
    "scheduling gate": (
        put(pod, schedulingGates=[{"name": "x/y"}]),
        ("schedulingGates must be absent", "spec.suspend"),
    ),
    "our label": (
        put(metadata, labels={"goodput.dev/rank": "0"}),
        ("metadata.labels", "goodput.dev/", "remove"),
    ),
    "our annotation": (
        put(metadata, annotations={"goodput.dev/progress-ca": "x"}),
        ("metadata.annotations", "goodput.dev/", "remove"),
    ),
    "queue label on the template": (
        put(metadata, labels={"kueue.x-k8s.io/queue-name": "q"}),
        ("kueue.x-k8s.io/queue-name", "on the TrainingJob"),
    ),
    "our volume name": (
        put(pod, volumes=[{"name": "goodput-progress", "emptyDir": {}}]),
        ("template.spec.volumes", "goodput-", "rename"),
    ),
    "neither request nor limit": (
        put(container, resources={}),
        ("template.spec.containers", "resources.requests or resources.limits"),
    ),
    "no resources": (
        lambda job: container(job).pop("resources"),
        ("template.spec.containers", "nvidia.com/gpu"),
    ),
    "empty requests": (put(container, resources={"requests": {}, "limits": {}}), ("at least one",)),
    "accelerator in requests alone": (
        put(container, resources={"requests": {"nvidia.com/gpu": 1}}),
        ("resources.limits", "accelerator", "set it in limits"),
    ),
    "accelerator in requests of an init container": (
        put(
            pod,
            initContainers=[
                {"name": "i", "image": "i", "resources": {"requests": {"google.com/tpu": 4}}}
            ],
        ),
        ("initContainers[0].resources.limits", "set it in limits"),
    ),
    "pods as a resource": (
        put(container, resources={"limits": {"cpu": 1, "pods": 1}}),
        ("pods is counted by itself",),
    ),
    "quantity that is none": (
        put(container, resources={"limits": {"cpu": "one"}}),
        ("containers[0].resources.limits.cpu",),
    ),
    "environment variable with a number": (
        put(container, env=[{"name": "SEED", "value": 7}]),
        ("env[0].value", "string"),
    ),
    "node selector with a boolean": (
        put(pod, nodeSelector={"gpu": True}),
        ("nodeSelector.gpu", "string"),
    ),
    "name that begins with a digit": (
        lambda job: job["metadata"].update(name="7b-pretraining"),
        ("metadata.name must start with a letter",),
    ),
    "name with a dot": (
        lambda job: job["metadata"].update(name="llama.7b"),
        ("metadata.name must start with a letter",),
    ),
    "names too long together": (
        lambda job: job["metadata"].update(name="a" * 45),
        ("metadata.name and the name of a role", "50 characters", "shorten"),
    ),
    "name too long with the second role": (second_role(name="b" * 37), ("50 characters",)),
    "checkpoint without uri": (lambda job: checkpoint(job).pop("uri"), ("uri", "Required")),
    "relative checkpoint path": (put(checkpoint, uri="ckpt"), ("spec.checkpoint.uri",)),
    "unknown scheme": (put(checkpoint, uri="ftp://host/x"), ("spec.checkpoint.uri",)),
    "bucket without a name": (put(checkpoint, uri="gs://"), ("spec.checkpoint.uri",)),
    "path not on the checkpoint volume": (
        put(checkpoint, uri="/other"),
        ("spec.checkpoint.uri", "not below volume.mountPath"),
    ),
    "path beside the checkpoint volume": (
        put(checkpoint, uri="/ckpt2"),
        ("spec.checkpoint.uri", "not below volume.mountPath"),
    ),
    "path on no volume": (
        on_path_without_volume("/ckpt", "/data"),
        ("spec.checkpoint", "lost with their pod", "set checkpoint.volume"),
    ),
    "path beside a mount": (on_path_without_volume("/data2", "/data"), ("set checkpoint.volume",)),
    "mount path with a slash at its end": (
        put(checkpoint, volume={"claimName": "c", "mountPath": "/ckpt/"}),
        ("spec.checkpoint.volume.mountPath",),
    ),
    "claim name with capitals": (
        put(checkpoint, volume={"claimName": "C", "mountPath": "/ckpt"}),
        ("spec.checkpoint.volume.claimName",),
    ),
    "interval negative": (
        put(checkpoint, intervalSeconds=-5),
        ("spec.checkpoint.intervalSeconds",),
    ),
    "checkpoint grace negative": (
        put(checkpoint, gracePeriodSeconds=-1),
        ("spec.checkpoint.gracePeriodSeconds",),
    ),
    "checkpoint grace over an hour": (
        put(checkpoint, gracePeriodSeconds=3601),
        ("spec.checkpoint.gracePeriodSeconds", "3600"),
    ),
    "interval 0": (put(checkpoint, intervalSeconds=0), ("spec.checkpoint.intervalSeconds",)),
    "pods' grace shorter than the checkpoint's": (
        put(pod, terminationGracePeriodSeconds=59),
        ("spec.roles", "terminationGracePeriodSeconds", "checkpoint.gracePeriodSeconds", "raise"),
    ),
    "longest backoff under the first": (
        put(spec, faultTolerance={"crashBackoff": {"baseSeconds": 60, "maxSeconds": 30}}),
        ("crashBackoff.maxSeconds", "must not be less than baseSeconds"),
    ),
    "first backoff over the default longest": (
        put(spec, faultTolerance={"crashBackoff": {"baseSeconds": 301}}),
        ("crashBackoff.maxSeconds",),
    ),
    "negative crash budget": (
        put(spec, faultTolerance={"maxCrashRestarts": -1}),
        ("spec.faultTolerance.maxCrashRestarts",),
    ),
    "negative infrastructure budget": (
        put(spec, faultTolerance={"maxInfrastructureRestarts": -1}),
        ("spec.faultTolerance.maxInfrastructureRestarts",),
    ),
    "backoff 0": (
        put(spec, faultTolerance={"crashBackoff": {"baseSeconds": 0}}),
        ("spec.faultTolerance.crashBackoff.baseSeconds",),
    ),
    "longest backoff negative": (
        put(spec, faultTolerance={"crashBackoff": {"maxSeconds": -1}}),
        ("spec.faultTolerance.crashBackoff.maxSeconds",),
    ),
    "unknown restart scope": (
        put(spec, faultTolerance={"restartScope": "Pod"}),
        ("spec.faultTolerance.restartScope", "Gang"),
    ),
    "deadline 0": (put(spec, activeDeadlineSeconds=0), ("spec.activeDeadlineSeconds",)),
    "deadline negative": (put(spec, activeDeadlineSeconds=-1), ("spec.activeDeadlineSeconds",)),
    "negative time to live": (
        put(spec, ttlSecondsAfterFinished=-1),
        ("spec.ttlSecondsAfterFinished",),
    ),
    "TensorFlow on 1001 ranks": (
        lambda job: (put(spec, framework="TensorFlow")(job), put(role, replicas=1001)(job)),
        ("spec.roles", "at most 1000 ranks", "TF_CONFIG"),
    ),
}

ACCEPTED: dict[str, Change] = {
    "as it is": lambda job: None,
    "16 rules of everything": tolerates(
        forgiveAfterSeconds=0,
        rules=[
            {
                "action": "RestartNotCounted",
                "roles": ["worker"],
                "exitCodes": list(range(1, 65)),
                "signals": ["SIGSEGV", "SIGBUS"],
                "reasons": ["OOMKilled", "Evicted"],
                "podConditions": [{"type": "DisruptionTarget", "reason": "DeletionByPodGC"}],
            }
        ]
        * 16,
    ),
    "no checkpoint": lambda job: spec(job).pop("checkpoint"),
    "two roles": second_role(name="evaluator", completesJob=True),
    "restart policy Never": put(pod, restartPolicy="Never"),
    "sidecar": put(pod, initContainers=[{"name": "s", "image": "s", "restartPolicy": "Always"}]),
    "limits alone": put(container, resources={"limits": {"nvidia.com/gpu": 8}}),
    "requests alone": put(container, resources={"requests": {"cpu": 1}}),
    "accelerator in both": put(
        container,
        resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}},
    ),
    "second container without resources": lambda job: pod(job)["containers"].append(
        {"name": "logs", "image": "logs"}
    ),
    "resources of the pod": lambda job: (
        container(job).pop("resources"),
        put(pod, resources={"requests": {"cpu": "2"}})(job),
    ),
    "longest names": lambda job: job["metadata"].update(name="a" * 44),
    "bucket": put(spec, checkpoint={"uri": "gs://bucket/runs"}),
    "bucket with a volume": put(checkpoint, uri="s3://bucket/runs"),
    "uri is the mount path": put(checkpoint, uri="/ckpt"),
    "path on a volume of the template": on_path_without_volume("/data/x", "/a", "/data"),
    "path is a mount with a slash": on_path_without_volume("/data", "/data/"),
    "enough grace": put(pod, terminationGracePeriodSeconds=60),
    "no queue label": put(spec, suspend=True),
    "budgets of 0": put(
        spec, faultTolerance={"maxCrashRestarts": 0, "maxInfrastructureRestarts": 0}
    ),
    "null where there is a default": put(spec, suspend=None, faultTolerance=None),
}


@pytest.fixture
def clean(kubectl: Kubectl) -> Iterator[Kubectl]:
    """``kubectl`` with no job left over from the test before, nor by this one."""
    yield kubectl
    kubectl.run("delete", "tj", "--all", "-n", "default", "--ignore-not-found")


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str, clean: Kubectl) -> None:
    change, fragments = REFUSED[case]
    job = good()
    change(job)

    result = clean.apply(job)

    assert result.returncode != 0, f"accepted: {result.stdout}"
    missing = [fragment for fragment in fragments if fragment not in result.stderr]
    assert not missing, f"{missing} not in: {result.stderr}"


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case: str, clean: Kubectl) -> None:
    job = good()
    ACCEPTED[case](job)

    result = clean.apply(job)

    assert result.returncode == 0, result.stderr


FROZEN: dict[str, tuple[Change, str]] = {
    "replicas": (put(role, replicas=3), "roles cannot change"),
    "a field that the schema does not know": (
        put(container, workingDir="/src"),
        "roles cannot change",
    ),
    "a variable": (
        put(container, env=[{"name": "SEED", "value": "8"}]),
        "roles cannot change",
    ),
    "another role": (second_role(name="more"), "roles cannot change"),
    "framework": (put(spec, framework="JAX"), "framework cannot change"),
    "checkpoint": (put(checkpoint, intervalSeconds=5), "checkpoint cannot change"),
    "no checkpoint any more": (lambda job: spec(job).pop("checkpoint"), "checkpoint cannot change"),
    "suspended in the same write": (
        lambda job: (put(spec, suspend=True)(job), put(role, replicas=3)(job)),
        "roles cannot change",
    ),
}


@pytest.mark.parametrize("case", FROZEN)
def test_what_runs_cannot_change(case: str, clean: Kubectl) -> None:
    change, message = FROZEN[case]
    assert clean.apply(good()).returncode == 0
    job = good()
    change(job)

    result = clean.apply(job)

    assert result.returncode != 0, f"accepted: {result.stdout}"
    assert message in result.stderr
    assert "set spec.suspend to true first" in result.stderr


def test_a_suspended_job_can_change_and_resume_at_once(clean: Kubectl) -> None:
    job = good()
    job["spec"]["suspend"] = True
    assert clean.apply(job).returncode == 0
    job["spec"]["suspend"] = False
    role(job)["replicas"] = 3

    result = clean.apply(job)

    assert result.returncode == 0, result.stderr


def test_budgets_and_deadlines_can_change_while_it_runs(clean: Kubectl) -> None:
    assert clean.apply(good()).returncode == 0
    job = good()
    job["spec"].update(activeDeadlineSeconds=60, faultTolerance={"maxCrashRestarts": 9})

    result = clean.apply(job)

    assert result.returncode == 0, result.stderr


def test_defaults_are_applied_and_unknown_fields_of_the_template_kept(clean: Kubectl) -> None:
    job = good()
    pod(job)["fieldOfTheFuture"] = {"deep": [1]}
    container(job)["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    assert clean.apply(job).returncode == 0

    stored = json.loads(clean.run("get", "tj", NAME, "-n", "default", "-o", "json").stdout)

    assert pod(stored)["fieldOfTheFuture"] == {"deep": [1]}
    assert container(stored)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert pod(stored)["restartPolicy"] == "Never"
    assert stored["spec"]["suspend"] is False
    assert stored["spec"]["framework"] == "Plain"
    assert stored["spec"]["podRetention"] == "All"
    assert checkpoint(stored)["intervalSeconds"] == 600
    assert stored["spec"]["faultTolerance"] == {
        "restartScope": "Gang",
        "maxCrashRestarts": 3,
        "maxHangRestarts": 3,
        "firstStepTimeoutSeconds": 1800,
        "crashBackoff": {"baseSeconds": 10, "maxSeconds": 300},
        "forgiveAfterSeconds": 21600,
        "rules": [],
    }


def test_columns_show_the_queue_of_the_label(clean: Kubectl) -> None:
    job = good()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "no-such-queue"}
    job["spec"]["suspend"] = True
    assert clean.apply(job).returncode == 0

    header, row = clean.run("get", "tj", "-n", "default").stdout.splitlines()

    assert header.split() == [
        "NAME", "STATE", "REASON", "QUEUE", "READY", "ATTEMPT", "STEP", "AGE",
    ]  # fmt: skip
    assert "no-such-queue" in row
