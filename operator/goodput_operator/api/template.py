"""Schema of a role's pod template.

A template is handed on to Kubernetes as it is: unknown fields are kept at every level, so that one
written for a newer Kubernetes keeps working. Declared is what a rule reads, and the fields in which
users most often get a type wrong.
"""

from collections.abc import Mapping
from typing import Any, Final

from goodput_operator.api import rules

Schema = dict[str, Any]

QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
    ),
    "x-kubernetes-int-or-string": True,
}


def _open(description: str, properties: Mapping[str, Schema], **keywords: Any) -> Schema:
    """An object that keeps unknown fields."""
    return {
        "description": description,
        "type": "object",
        "properties": dict(properties),
        "x-kubernetes-preserve-unknown-fields": True,
        **keywords,
    }


def _keyed(description: str, items: Schema, max_items: int, **keywords: Any) -> Schema:
    """A list in which names are unique."""
    return {
        "description": description,
        "type": "array",
        "items": items,
        "maxItems": max_items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        **keywords,
    }


def _list(description: str, items: Schema, **keywords: Any) -> Schema:
    return {"description": description, "type": "array", "items": items, **keywords}


def _strings(description: str, **keywords: Any) -> Schema:
    """A map from strings to strings."""
    return {
        "description": description,
        "type": "object",
        "additionalProperties": {"type": "string"},
        **keywords,
    }


def _text(description: str, **keywords: Any) -> Schema:
    return {"description": description, "type": "string", **keywords}


def _quantities(description: str) -> Schema:
    return {
        "description": description,
        "type": "object",
        "additionalProperties": QUANTITY,
        "maxProperties": rules.MAX_RESOURCES,
    }


_RESOURCES: Final = _open(
    "What it takes from its node; quota and placement are counted by it.",
    {
        "requests": _quantities("Least amounts. Where one is absent, the limit counts."),
        "limits": _quantities("Largest amounts. Accelerators are given here."),
    },
    **rules.CONTAINER_RESOURCES_RULES,
)

_CONTAINER: Final = _open(
    "A container of the rank; any field of a Kubernetes container.",
    {
        "name": _text("Name of the container.", maxLength=63),
        "image": _text("Image of the container.", minLength=1),
        "command": _list("Entry point.", {"type": "string"}),
        "args": _list("Arguments of the entry point.", {"type": "string"}),
        "env": _list(
            "Environment. A variable set here wins over the operator's of the same name.",
            _open(
                "A variable.",
                {
                    "name": _text("Name of the variable.", minLength=1),
                    "value": _text("Its value; numbers must be quoted."),
                },
                required=["name"],
            ),
        ),
        "ports": _list(
            "Ports. One named coordinator, in the first role, is where rank 0 hosts the "
            "rendezvous; without it that is 29400.",
            _open(
                "A port.",
                {
                    "name": _text("Name of the port.", maxLength=15),
                    "containerPort": {
                        "description": "Number of the port.",
                        "type": "integer",
                        "format": "int32",
                        "minimum": 1,
                        "maximum": 65535,
                    },
                },
                required=["containerPort"],
            ),
        ),
        "resources": _RESOURCES,
        "restartPolicy": _text("Of init containers only: Always makes it a sidecar.", maxLength=32),
        "volumeMounts": _list(
            "Volumes mounted into the container.",
            _open(
                "A mount.",
                {
                    "name": _text("Name of the volume.", maxLength=63),
                    "mountPath": _text("Where it is mounted.", maxLength=rules.MAX_PATH),
                },
                required=["name", "mountPath"],
            ),
            maxItems=rules.MAX_MOUNTS,
        ),
    },
    required=["name", "image"],
)

_POD_SPEC: Final = _open(
    "Specification of the rank's pod; any field of a Kubernetes pod that the operator does not "
    "set itself.",
    {
        "containers": _keyed(
            "Containers of the rank.", _CONTAINER, rules.MAX_CONTAINERS, minItems=1
        ),
        "initContainers": _keyed(
            "Containers that run before the others, or beside them as sidecars.",
            _CONTAINER,
            rules.MAX_CONTAINERS,
        ),
        "volumes": _keyed(
            "Volumes of the pod.",
            _open("A volume.", {"name": _text("Its name.", maxLength=63)}, required=["name"]),
            rules.MAX_VOLUMES,
        ),
        "resources": _RESOURCES,
        "restartPolicy": _text(
            "Never: a rank is restarted with its gang, not by its kubelet.",
            default="Never",
            maxLength=32,
        ),
        "terminationGracePeriodSeconds": {
            "description": "Seconds between SIGTERM and SIGKILL. By default 30, or "
            "checkpoint.gracePeriodSeconds if that is more.",
            "type": "integer",
            "format": "int64",
            "minimum": 0,
        },
        "nodeSelector": _strings("Labels that a node must have."),
        "affinity": _open("Affinity to nodes and pods.", {}),
        "tolerations": _list("Taints that the rank tolerates.", _open("A toleration.", {})),
        "priorityClassName": _text("Priority of the pods, as the scheduler and kubelets see it."),
        "runtimeClassName": _text("RuntimeClass of the pods."),
        "schedulerName": _text("Scheduler that binds the pods."),
        "serviceAccountName": _text("ServiceAccount of the pods."),
        "nodeName": _text("Must be absent: the operator places the gang.", maxLength=253),
        "hostname": _text("Must be absent: the operator sets it.", maxLength=63),
        "subdomain": _text("Must be absent: the operator sets it.", maxLength=63),
        "schedulingGates": _list(
            "Must be absent: a gang starts whole.", _open("A gate.", {}), maxItems=64
        ),
    },
    required=["containers"],
    **rules.POD_SPEC_RULES,
)

POD_TEMPLATE: Final = _open(
    "Pod template of a rank; the operator adds its labels, environment, volumes and node to it.",
    {
        "metadata": _open(
            "Labels and annotations of the pods.",
            {
                "labels": _strings("Labels of the pods.", maxProperties=rules.MAX_LABELS),
                "annotations": _strings("Annotations of the pods.", maxProperties=rules.MAX_LABELS),
            },
            **rules.TEMPLATE_METADATA_RULES,
        ),
        "spec": _POD_SPEC,
    },
    required=["spec"],
)
