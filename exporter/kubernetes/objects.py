"""The parts of Nodes and pods that the exporter reads, and the error of calls."""

from datetime import datetime
from typing import Any

import msgspec

from exporter.config import PROGRAM
from exporter.errors import ExporterError

_MIRROR = "kubernetes.io/config.mirror"


class KubernetesError(ExporterError):
    """A failed call, like ``patch nodes/status``; ``status`` is None if there was no HTTP answer."""

    def __init__(self, call: str, status: int | None, message: str) -> None:
        super().__init__(f"{call}: {message}")
        self.call = call
        self.status = status


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    pass


class OwnerReference(_Object, frozen=True):
    kind: str = ""
    controller: bool = False


class ManagedFields(_Object, frozen=True):
    """The fields that one client set, as nested keys such as ``f:spec``."""

    manager: str = ""
    fields_v1: dict[str, Any] | None = msgspec.field(name="fieldsV1", default=None)

    @property
    def cordons(self) -> bool:
        """Whether the client set ``spec.unschedulable``."""
        spec = (self.fields_v1 or {}).get("f:spec")
        return isinstance(spec, dict) and "f:unschedulable" in spec


class Metadata(_Object, frozen=True):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFields, ...] = ()


class NodeSpec(_Object, frozen=True):
    """The specification of a Node; taints as they are, because they are replaced as a whole."""

    unschedulable: bool | None = None
    taints: tuple[dict[str, Any], ...] = ()


class Condition(_Object, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(_Object, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Node(_Object, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_cordoned_by_others(self) -> bool:
        """Whether another client has set ``spec.unschedulable``."""
        return any(one.cordons and one.manager != PROGRAM for one in self.metadata.managed_fields)


class PodSpec(_Object, frozen=True):
    termination_grace_period_seconds: int = 30


class PodStatus(_Object, frozen=True):
    phase: str = ""


class Pod(_Object, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def grace(self) -> int:
        return self.spec.termination_grace_period_seconds

    @property
    def stays(self) -> bool:
        """Whether it belongs to the Node: pods of DaemonSets, and mirrors of the kubelet's own."""
        return self._controller == "DaemonSet" or _MIRROR in self.metadata.annotations

    @property
    def is_replaced(self) -> bool:
        """Whether nothing is lost with it: a controller replaces it, or it has ended."""
        return bool(self._controller) or self.status.phase in ("Succeeded", "Failed")

    @property
    def _controller(self) -> str:
        return next((owner.kind for owner in self.metadata.owner_references if owner.controller), "")


class ListMetadata(msgspec.Struct, frozen=True):
    """The metadata of a list; ``following`` is the token for its next page, "" for the last."""

    following: str = msgspec.field(name="continue", default="")


class PodList(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()
    metadata: ListMetadata = ListMetadata()
