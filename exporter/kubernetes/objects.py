"""The parts of Nodes and pods that the exporter reads, and the error of calls."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from exporter.config import PROGRAM
from exporter.errors import ExporterError


class KubernetesError(ExporterError):
    """A failed call, like ``patch nodes/status``; ``status`` is None if there was no HTTP answer."""

    def __init__(self, call: str, status: int | None, message: str) -> None:
        super().__init__(f"{call}: {message}")
        self.call = call
        self.status = status


class TooLargeError(KubernetesError):
    """The answer is larger than what is read."""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Field(msgspec.Struct, frozen=True):
    """A nested field whose contents are of no interest."""


class _SpecFields(msgspec.Struct, frozen=True):
    unschedulable: _Field | None = msgspec.field(name="f:unschedulable", default=None)


class _Fields(msgspec.Struct, frozen=True):
    spec: _SpecFields = msgspec.field(name="f:spec", default=_SpecFields())


class ManagedFields(_Object, frozen=True):
    """Which client, a ``manager``, set ``spec.unschedulable``; the other fields that it set are not kept."""

    manager: str = ""
    fields_v1: _Fields = msgspec.field(name="fieldsV1", default=_Fields())

    @property
    def cordons(self) -> bool:
        """Whether the client set ``spec.unschedulable``."""
        return self.fields_v1.spec.unschedulable is not None


class Metadata(_Object, frozen=True):
    """The metadata of a Node."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
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


class Pod(NamedTuple):
    """What a drain needs to know of a pod. A tenant determines the size of the rest, which is not kept.

    ``grace`` is its grace period in seconds, None if that is not known. It ``stays`` if it belongs to the
    Node: pods of DaemonSets, and mirrors of the kubelet's own. It ``is_replaced`` if nothing is lost with
    it: a controller replaces it, or it has ended. It terminates, and ``ends`` then, unless that is None.
    """

    namespace: str
    name: str
    uid: str
    grace: int | None = 30
    stays: bool = False
    is_replaced: bool = False
    ends: datetime | None = None

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


class OwnerReference(_Object, frozen=True):
    kind: str = ""
    controller: bool = False


class PodAnnotations(msgspec.Struct, frozen=True):
    mirror: str | None = msgspec.field(name="kubernetes.io/config.mirror", default=None)


class PodMetadata(_Object, frozen=True):
    name: str
    uid: str = ""
    namespace: str = ""
    annotations: PodAnnotations = PodAnnotations()
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class PodSpec(_Object, frozen=True):
    termination_grace_period_seconds: int = 30


class PodStatus(_Object, frozen=True):
    phase: str = ""


class PodItem(_Object, frozen=True):
    """A pod of a list; ``spec`` is None where only metadata was asked for."""

    metadata: PodMetadata
    spec: PodSpec | None = None
    status: PodStatus = PodStatus()

    @property
    def pod(self) -> Pod:
        meta, spec = self.metadata, self.spec
        controller = next((owner.kind for owner in meta.owner_references if owner.controller), "")
        return Pod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            grace=spec.termination_grace_period_seconds if spec is not None else None,
            stays=controller == "DaemonSet" or meta.annotations.mirror is not None,
            is_replaced=bool(controller) or self.status.phase in ("Succeeded", "Failed"),
            ends=meta.deletion_timestamp,
        )


class ListMetadata(msgspec.Struct, frozen=True):
    """The metadata of a list; ``following`` is the token for its next page, "" for the last."""

    following: str = msgspec.field(name="continue", default="")


class PodList(msgspec.Struct, frozen=True):
    items: tuple[PodItem, ...] = ()
    metadata: ListMetadata = ListMetadata()


class Nothing(msgspec.Struct, frozen=True):
    """An answer whose contents are of no interest."""
