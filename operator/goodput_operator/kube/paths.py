"""Resources by their plural, and the URL paths of their objects."""

from dataclasses import dataclass
from urllib.parse import quote

from goodput_operator import constants as c


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as the API server's URLs name it."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """URL path of the collection, of one object, or of a subresource of it."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)


TRAINING_JOBS = Resource(c.GROUP, c.VERSION, c.PLURAL)
NODE_HEALTHS = Resource(c.GROUP, c.VERSION, c.NODE_HEALTH_PLURAL, namespaced=False)
WORKLOADS = Resource(c.KUEUE_GROUP, c.KUEUE_VERSION, "workloads")
RESOURCE_FLAVORS = Resource(c.KUEUE_GROUP, c.KUEUE_VERSION, "resourceflavors", namespaced=False)
ADMISSION_CHECKS = Resource(c.KUEUE_GROUP, c.KUEUE_VERSION, "admissionchecks", namespaced=False)
PRIORITY_CLASSES = Resource(
    c.KUEUE_GROUP, c.KUEUE_VERSION, "workloadpriorityclasses", namespaced=False
)
PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases")
SERVICES = Resource("", "v1", "services")
EVENTS = Resource("", "v1", "events")
SECRETS = Resource("", "v1", "secrets")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
