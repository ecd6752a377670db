"""goodput-operator: fault-tolerant training jobs on Kubernetes, with Kueue."""

__version__ = "0.1.0"
