"""A real Kubernetes control plane, Kueue and nodes on one machine, without a registry.

For development and tests only: nothing here is shipped with the operator.
"""

from .options import SandboxError, SandboxOptions
from .sandbox import Sandbox

__all__ = ["Sandbox", "SandboxError", "SandboxOptions"]
