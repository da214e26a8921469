"""Kubernetes Events about the Node and the pods that are evicted.

Their names follow from what they are about, so that none is created twice, whoever tries again.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from exporter.config import PROGRAM
from exporter.kubernetes.desired import description
from exporter.kubernetes.objects import Node, Pod
from exporter.model.events import Target
from exporter.model.lifecycle import Life, TransitionRecord
from exporter.model.messages import severity
from exporter.model.views import Snapshot
from exporter.timefmt import rfc3339

# The API server deletes Events after an hour, and older ones are no longer of interest.
_RECENT = timedelta(hours=1)
# Per Node: a source of hostile documents must not flood the API server.
_MOST_RECENT = 50


def recent(snapshot: Snapshot, now: datetime) -> Iterator[tuple[str, Life, TransitionRecord]]:
    """Yield the recent transitions of events of this VM with an identity, the newest first."""
    found = [
        (record.at, f"{life.key}/{number}/{record.transition}", life, record)
        for life in (*snapshot.current, *snapshot.past)
        if life.affects is Target.SELF
        for number, record in enumerate(life.transitions, start=1)
        if now - record.at < _RECENT
    ]
    found.sort(key=lambda one: one[0], reverse=True)
    return ((identity, life, record) for _, identity, life, record in found[:_MOST_RECENT])


def node_event(node: Node, identity: str, life: Life, record: TransitionRecord) -> dict[str, Any]:
    grave = severity(record.transition, life.event.event_type).value not in ("info", "success")
    words = record.transition.value.split("_")
    return _event(
        {"kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid},
        ("default", node.metadata.name),
        identity=(identity,),
        at=record.at,
        type="Warning" if grave else "Normal",
        reason="ScheduledEvent" + "".join(word.capitalize() for word in words),
        message=f"{' '.join(words)}: {description(life)}",
    )


def eviction_event(pod: Pod, node: str, lives: Sequence[Life], at: datetime) -> dict[str, Any]:
    return _event(
        {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        (pod.namespace, node),
        identity=(pod.name, pod.uid),
        at=at,
        type="Normal",
        reason="ScheduledEventEviction",
        message=f"evicted from Node {node} before {description(lives[0])}",
    )


def _event(
    about: dict[str, str], place: tuple[str, str], *, identity: Sequence[str], at: datetime, **content: str
) -> dict[str, Any]:
    """Return an Event; ``place`` is its namespace and the name of the Node."""
    namespace, node = place
    digest = hashlib.sha256("\0".join((node, *identity)).encode(errors="replace")).hexdigest()[:20]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": f"scheduled-event-{digest}"},
        "involvedObject": {"apiVersion": "v1"} | about,
        "source": {"component": PROGRAM, "host": node},
        "firstTimestamp": rfc3339(at),
        "lastTimestamp": rfc3339(at),
        "count": 1,
    } | content
