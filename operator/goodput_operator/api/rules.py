"""CEL rules of the TrainingJob: what a schema alone cannot say.

The API server evaluates them on every write, after defaults were applied, so that bad input is
refused with a message that names the field and the remedy. Every rule's worst case must stay under
the API server's cost limits, which is why the lists and strings they walk are bounded.
"""

from typing import Any, Final

MAX_NAMES: Final = 50
"""Characters of a job's and a role's name together: the rest of the 63 that a pod's name may have
(it is also the pod's hostname) is kept for ``-aNNNNN-`` and ``-NNNN``."""
MAX_TENSORFLOW_RANKS: Final = 1000
MAX_CONTAINERS: Final = 32
MAX_MOUNTS: Final = 64
MAX_RESOURCES: Final = 32
MAX_LABELS: Final = 64
MAX_VOLUMES: Final = 128
MAX_PATH: Final = 512

Rule = dict[str, str]


def rule(expression: str, message: str, field_path: str = "") -> Rule:
    """An entry of ``x-kubernetes-validations``; the field path is relative to the rule's place."""
    entry = {"rule": expression, "message": message}
    if field_path:
        entry["fieldPath"] = field_path
    return entry


def validations(*rules: Rule) -> dict[str, Any]:
    """The schema keyword that holds these rules."""
    return {"x-kubernetes-validations": list(rules)}


_ON_MOUNT = (
    "uri.startsWith(m.mountPath) && "
    "(m.mountPath.endsWith('/') || uri.charAt(size(m.mountPath)) == '/')"
)

ROOT_RULES: Final = validations(
    rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must start with a letter and hold only a-z, 0-9 and '-': "
        "a Service and the ranks' hostnames are named after it",
        ".metadata",
    ),
    rule(
        f"self.spec.roles.all(r, size(self.metadata.name) + size(r.name) <= {MAX_NAMES})",
        f"metadata.name and the name of a role together may have at most {MAX_NAMES} characters, "
        "since both are part of the ranks' hostnames (63): shorten one of them",
        ".metadata",
    ),
)

_FROZEN = "while the job is not suspended: set spec.suspend to true first, and then change it"

SPEC_RULES: Final = validations(
    rule(
        "oldSelf.suspend || self.roles == oldSelf.roles",
        f"roles cannot change {_FROZEN}",
        ".roles",
    ),
    rule(
        "oldSelf.suspend || self.framework == oldSelf.framework",
        f"framework cannot change {_FROZEN}",
        ".framework",
    ),
    rule(
        "oldSelf.suspend || (has(self.checkpoint) == has(oldSelf.checkpoint) && "
        "(!has(self.checkpoint) || self.checkpoint == oldSelf.checkpoint))",
        f"checkpoint cannot change {_FROZEN}",
        ".checkpoint",
    ),
    rule(
        "!has(self.checkpoint) || self.roles.all(r, "
        "!has(r.template.spec.terminationGracePeriodSeconds) || "
        "r.template.spec.terminationGracePeriodSeconds >= self.checkpoint.gracePeriodSeconds)",
        "terminationGracePeriodSeconds of a role's template is shorter than "
        "checkpoint.gracePeriodSeconds: raise it, or leave it out to have it set",
        ".roles",
    ),
    rule(
        "!has(self.checkpoint) || !self.checkpoint.uri.startsWith('/') || "
        "has(self.checkpoint.volume) || [self.checkpoint.uri + '/'].exists(uri, "
        "self.roles.exists(r, r.template.spec.containers.exists(c, has(c.volumeMounts) && "
        f"c.volumeMounts.exists(m, {_ON_MOUNT}))))",
        "checkpoint.uri is a path on no volume, so that checkpoints would be lost with their pod: "
        "set checkpoint.volume, or mount a volume there in a role's template",
        ".checkpoint",
    ),
    rule(
        "!has(self.faultTolerance.rules) || self.faultTolerance.rules.all(f, !has(f.roles) || "
        "f.roles.all(name, self.roles.exists(r, r.name == name)))",
        "a rule names a role that spec.roles does not have: correct its name, or leave roles out "
        "to have the rule apply to every role",
        ".faultTolerance.rules",
    ),
    rule(
        "self.roles.filter(r, has(r.minReplicas)).size() <= 1",
        "only one role may set minReplicas, since Kueue admits one of them in part: remove it "
        "from the others",
        ".roles",
    ),
    rule(
        "self.framework != 'TensorFlow' || "
        f"self.roles.map(r, r.replicas).sum() <= {MAX_TENSORFLOW_RANKS}",
        f"a TensorFlow job may have at most {MAX_TENSORFLOW_RANKS} ranks: "
        "TF_CONFIG names every rank in every pod",
        ".roles",
    ),
)

ROLE_RULES: Final = validations(
    rule(
        "!has(self.minReplicas) || self.minReplicas <= self.replicas",
        "minReplicas must not be more than replicas: lower the one or raise the other",
        ".minReplicas",
    ),
)

CHECKPOINT_RULES: Final = validations(
    rule(
        "!has(self.volume) || !self.uri.startsWith('/') || "
        "(self.uri + '/').startsWith(self.volume.mountPath + '/')",
        "uri is not below volume.mountPath, so that checkpoints would not reach the volume: "
        "make uri the mountPath or a path below it",
        ".uri",
    ),
)

BACKOFF_RULES: Final = validations(
    rule(
        "self.maxSeconds >= self.baseSeconds",
        "maxSeconds must not be less than baseSeconds: raise the one or lower the other",
        ".maxSeconds",
    ),
)

FAILURE_RULE_RULES: Final = validations(
    rule(
        "(has(self.exitCodes) && size(self.exitCodes) > 0) || "
        "(has(self.signals) && size(self.signals) > 0) || "
        "(has(self.reasons) && size(self.reasons) > 0) || "
        "(has(self.podConditions) && size(self.podConditions) > 0)",
        "a rule needs at least one mark to tell a failure by: set exitCodes, signals, reasons or "
        "podConditions",
    ),
)

TEMPLATE_METADATA_RULES: Final = validations(
    rule(
        "!has(self.labels) || !self.labels.exists(k, k.startsWith('goodput.dev/'))",
        "labels that begin with goodput.dev/ are set by the operator: remove them",
        ".labels",
    ),
    rule(
        "!has(self.annotations) || !self.annotations.exists(k, k.startsWith('goodput.dev/'))",
        "annotations that begin with goodput.dev/ are set by the operator: remove them",
        ".annotations",
    ),
    rule(
        "!has(self.labels) || !('kueue.x-k8s.io/queue-name' in self.labels)",
        "the queue is given by the label kueue.x-k8s.io/queue-name on the TrainingJob: move it "
        "there, or Kueue queues each pod by itself",
        ".labels",
    ),
)

_REQUESTS = (
    "has({0}.resources) && ((has({0}.resources.requests) && size({0}.resources.requests) > 0) || "
    "(has({0}.resources.limits) && size({0}.resources.limits) > 0))"
)

POD_SPEC_RULES: Final = validations(
    rule(
        "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        "restartPolicy must be Never, or absent: a rank is restarted with its gang and not by its "
        "kubelet; how often is set by spec.faultTolerance",
        ".restartPolicy",
    ),
    rule(
        "self.containers.all(c, !has(c.restartPolicy))",
        "a container must not set restartPolicy: a rank is restarted with its gang; for a sidecar "
        "use an init container with restartPolicy Always",
        ".containers",
    ),
    rule(
        "!has(self.nodeName) || self.nodeName == ''",
        "nodeName must be absent, since the operator places the gang: "
        "use nodeSelector or affinity to restrict where ranks may run",
        ".nodeName",
    ),
    rule(
        "!has(self.hostname) && !has(self.subdomain)",
        "hostname and subdomain must be absent: the operator sets them, so that ranks find each "
        "other; their addresses are in the environment, such as GOODPUT_COORDINATOR",
    ),
    rule(
        "!has(self.schedulingGates) || size(self.schedulingGates) == 0",
        "schedulingGates must be absent, since a gang starts whole or not at all: "
        "use spec.suspend to hold the job back",
        ".schedulingGates",
    ),
    rule(
        f"({_REQUESTS.format('self')}) || self.containers.exists(c, {_REQUESTS.format('c')})",
        "at least one container must have resources.requests or resources.limits, such as cpu, "
        "memory or nvidia.com/gpu: quota and placement count nothing else",
        ".containers",
    ),
    rule(
        "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('goodput-'))",
        "volumes whose name begins with goodput- are added by the operator: rename it",
        ".volumes",
    ),
)

CONTAINER_RESOURCES_RULES: Final = validations(
    rule(
        "!has(self.requests) || self.requests.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] "
        "|| (has(self.limits) && k in self.limits))",
        "an accelerator, or other resource that cannot be overcommitted, has requests but no "
        "limits: set it in limits, which then count as requests too",
        ".limits",
    ),
    rule(
        "(!has(self.requests) || !('pods' in self.requests)) && "
        "(!has(self.limits) || !('pods' in self.limits))",
        "the resource pods is counted by itself: remove it",
    ),
)
