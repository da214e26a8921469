"""The calls of the Kubernetes API that the exporter needs, as the pod's service account.

Source: https://kubernetes.io/docs/reference/kubernetes-api/ and "Accessing the Kubernetes API from a Pod".
"""

import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from exporter import __version__
from exporter.config import PROGRAM
from exporter.errors import ExporterError, cause, one_line, without
from exporter.files import read_text
from exporter.transport import LargeAnswerError, Request, Transport


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
    """Whether a client set ``spec.unschedulable``; the other fields that it set are not kept."""

    manager: str = ""
    fields_v1: _Fields = msgspec.field(name="fieldsV1", default=_Fields())

    @property
    def cordons(self) -> bool:
        """Whether the client set ``spec.unschedulable``."""
        return self.fields_v1.spec.unschedulable is not None


class Metadata(_Object, frozen=True):
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
        return any(fields.cordons and fields.manager != PROGRAM for fields in self.metadata.managed_fields)


class Pod(NamedTuple):
    """What a drain needs to know of a pod. A tenant determines the size of the rest, which is not kept."""

    namespace: str
    name: str
    uid: str
    grace: int | None = 30  # its grace period in seconds, None if that is not known
    stays: bool = False  # a pod of a DaemonSet, or a mirror of the kubelet's own
    is_replaced: bool = False  # nothing is lost: a controller replaces it, or it has ended
    ends: datetime | None = None  # if it terminates

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


class Right(NamedTuple):
    """A call that the service account may need; "" for all namespaces, and for all names."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def call(self) -> str:
        return f"{self.verb} {self.resource}"


class AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool


class AccessReview(msgspec.Struct, frozen=True):
    status: AccessReviewStatus


class Nothing(msgspec.Struct, frozen=True):
    """An answer whose contents are of no interest."""


T = TypeVar("T")

MOST_AT_ONCE = 10
TIMEOUT_SECONDS = 4.0  # an attempt and the pause after it are at most 5 s together
_MOST_OBJECT_BYTES = 1536 * 1024  # what etcd stores of an object: https://etcd.io/docs/v3.6/dev-guide/limit/
_MOST_PAGE_BYTES = 4 * 1024 * 1024
_PODS_PER_PAGE = 20
# Of one list: its pages, its time, and the names that are kept. The usual limits are 110 or 250 pods for each
# Node, whose names have at most 353 bytes each.
_MOST_PAGES = 1000
_MOST_NAME_BYTES = 1024 * 1024
_LIST_SECONDS = 30.0
_METHODS = {"get": "GET", "list": "GET", "patch": "PATCH", "create": "POST", "delete": "DELETE"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC_MERGE = {"Content-Type": "application/strategic-merge-patch+json"}
_JSON = "application/json"
# https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
_ONLY_METADATA = {"Accept": f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"


def _options(pod: Pod, grace: int | None) -> dict[str, Any]:
    """Return the options that delete this very pod, with its own grace period unless another is given."""
    period = {"gracePeriodSeconds": grace} if grace is not None else {}
    return {"preconditions": {"uid": pod.uid}, **period}


class _Status(msgspec.Struct):
    message: str = ""


class Client:
    """Sends requests to the API server; safe to use from several threads."""

    def __init__(self, service_account: str, environ: Mapping[str, str]) -> None:
        """``service_account`` is the directory of ``token`` and ``ca.crt``, which may change at any time."""
        self._directory = Path(service_account)
        self._environ = environ
        self._transport = self._new_transport()
        self.pods_per_page = _PODS_PER_PAGE  # reduced while pages are too large

    @property
    def has_account(self) -> bool:
        """Whether there is an API server and a service account to ask it with, as in most pods."""
        return self._transport is not None and (self._directory / "token").exists()

    def forget(self) -> None:
        """Ask for pages of the usual size again."""
        self.pods_per_page = _PODS_PER_PAGE

    def node(self, name: str) -> Node:
        """Return a Node; as all methods do, raise KubernetesError if there is no usable answer."""
        return self._ask("get nodes", f"/api/v1/nodes/{quote(name)}", Node)

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> Node:
        """Change metadata and spec of a Node; with a ``resourceVersion`` only if it is still that one."""
        return self._ask("patch nodes", f"/api/v1/nodes/{quote(name)}", Node, patch, headers=_MERGE)

    def patch_node_status(self, name: str, patch: Mapping[str, Any]) -> Node:
        """Change the status of a Node; conditions are merged by their type."""
        path = f"/api/v1/nodes/{quote(name)}/status"
        return self._ask("patch nodes/status", path, Node, patch, headers=_STRATEGIC_MERGE)

    def pods(self, node: str, selector: str = "") -> Iterator[Pod]:
        """Yield each pod of a Node once: those that a label selector selects, by default all."""
        query = {
            "fieldSelector": f"spec.nodeName={node}",
            **({"labelSelector": selector} if selector else {}),
        }
        identities: set[tuple[str, str, str]] = set()
        size = 0
        for pod in (item.pod for page in self._pages(query) for item in page.items):
            identity = pod.namespace, pod.name, pod.uid
            if identity in identities:
                continue
            size += sum(map(sys.getsizeof, identity))
            if size > _MOST_NAME_BYTES:
                words = f"the names of the pods take over {_MOST_NAME_BYTES / 2**20:g} MiB"
                raise KubernetesError("list pods", None, words)
            identities.add(identity)
            yield pod

    def _pages(self, query: Mapping[str, str]) -> Iterator[PodList]:
        """Yield the pages of a list.

        Where one is too large, the list begins anew with smaller ones, as all pages of a list must be asked
        for alike. Of a pod that alone is too large only the metadata is read.
        """
        following, until = "", time.monotonic() + _LIST_SECONDS
        for _ in range(_MOST_PAGES):
            if time.monotonic() >= until:
                break
            try:
                page = self._page(query, following)
            except TooLargeError:
                if self.pods_per_page > 1:
                    self.pods_per_page, following = max(self.pods_per_page // 4, 1), ""
                    continue
                page = self._page(query, following, _ONLY_METADATA)
            except KubernetesError as error:
                if error.status is None:
                    # It may have been too large to come in time.
                    self.pods_per_page = max(self.pods_per_page // 4, 1)
                raise
            yield page
            following = page.metadata.following
            if not following:
                return
        raise KubernetesError(
            "list pods", None, f"the list has no end within {_MOST_PAGES} pages and {_LIST_SECONDS:g} s"
        )

    def _page(
        self, query: Mapping[str, str], following: str, headers: Mapping[str, str] | None = None
    ) -> PodList:
        query = {**query, "limit": str(self.pods_per_page)}
        if following:
            query["continue"] = following
        return self._ask("list pods", f"/api/v1/pods?{urlencode(query)}", PodList, headers=headers)

    def evict(self, pod: Pod, grace: int | None, timeout: float) -> None:
        """Evict a pod, with its own grace period or that of ``grace`` seconds.

        The status of an error is 429 if a PodDisruptionBudget does not allow it now, 404 if the pod is gone,
        and 409 if there is another one of that name.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _options(pod, grace),
        }
        self._ask("create pods/eviction", f"{_path(pod)}/eviction", Nothing, eviction, timeout=timeout)

    def delete(self, pod: Pod, grace: int | None, timeout: float) -> None:
        """Delete a pod, as `evict` does, but whatever a PodDisruptionBudget allows."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **_options(pod, grace)}
        self._ask("delete pods", _path(pod), Nothing, options, timeout=timeout)

    def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an Event; the status of an error is 409 if there is one of that name."""
        path = f"/api/v1/namespaces/{quote(event['metadata']['namespace'])}/events"
        self._ask("create events", path, Nothing, event)

    def may(self, right: Right) -> bool:
        """Return whether the service account has a right.

        https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
        """
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb,
            "resource": resource,
            "subresource": subresource,
            "namespace": right.namespace,
            "name": right.name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return self._ask("create selfsubjectaccessreviews", path, AccessReview, review).status.allowed

    def close(self) -> None:
        """Close the connections: idle ones now, the others after use. Later requests open new ones."""
        if self._transport is not None:
            self._transport.close()

    def _ask(
        self,
        call: str,
        path: str,
        kind: type[T],
        content: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> T:
        token = ""
        try:
            token = self._read("token").strip()
            method = _METHODS[call.partition(" ")[0]]
            special = {"Authorization": f"Bearer {token}", **(headers or {})}
            request, transport = self._prepared(method, path, content, special)
            limit = _MOST_PAGE_BYTES if kind is PodList else _MOST_OBJECT_BYTES
            status, body, *_ = transport.send(request, timeout, limit)
        except LargeAnswerError as error:
            raise TooLargeError(call, None, str(error)) from error
        except TimeoutError as error:
            raise KubernetesError(call, None, f"no answer within {timeout:g} s") from error
        except Exception as error:
            # Not a list of types: a malformed answer can cause any error in a parser.
            raise KubernetesError(call, None, cause(error, [token])) from error
        try:
            if status < 300:
                return msgspec.json.decode(body, type=kind)
            reason = msgspec.json.decode(body, type=_Status).message
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if status < 300:
                raise KubernetesError(call, None, f"not a valid answer: {cause(error)}") from error
            reason = body.decode(errors="replace")
        words = "forbidden: " if status == 403 else ""
        # A proxy may repeat the headers of the request.
        reason = one_line(without(reason, [token]))
        raise KubernetesError(call, status, f"status {status}: {words}{reason}")

    def _prepared(
        self, method: str, path: str, content: Mapping[str, Any] | None, special: Mapping[str, str]
    ) -> tuple[Request, Transport]:
        headers = {
            "Accept": _JSON,
            "Accept-Encoding": "identity",
            "User-Agent": f"{PROGRAM}/{__version__}",
            **special,
        }
        data = None
        if content is not None:
            headers.setdefault("Content-Type", _JSON)
            if method != "DELETE":
                path += f"?fieldManager={PROGRAM}"
            data = msgspec.json.encode(content)
        if self._transport is None:
            raise ValueError("KUBERNETES_SERVICE_HOST and _PORT are not set; run the exporter in a pod")
        return Request(method, self._transport.endpoint + path, headers, data), self._transport

    def _new_transport(self) -> Transport | None:
        host, port = (self._environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            return None
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return Transport(server, tls=self._tls)

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._read("ca.crt"))

    def _read(self, name: str) -> str:
        path = self._directory / name
        try:
            return read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            # Without a cause, as `cause` would show that alone.
            raise ValueError(f"{path} cannot be read: {cause(error)}; mount a service account") from None
