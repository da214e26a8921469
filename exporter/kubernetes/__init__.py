"""The Node of this VM in Kubernetes: conditions, annotations, Events, cordon and drain."""

from exporter.kubernetes.loop import NodeLoop
from exporter.kubernetes.reports import Reports

__all__ = ["NodeLoop", "Reports"]
