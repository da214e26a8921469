"""What the Node should be, as a pure function of the lives, the configuration, what it is, and the time.

Beside it, the Kubernetes Events about the Node and the pods that are evicted. Their names follow from what
they are about, so that none is created twice, whoever tries again.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from exporter.config import PROGRAM
from exporter.config.kubernetes import Drain, Kubernetes
from exporter.model.events import Affected, ScheduledEvent
from exporter.model.lifecycle import Life, Transition, TransitionRecord
from exporter.model.messages import severity
from exporter.model.views import Snapshot
from exporter.outputs.kubernetes.client import Condition, Node, Pod, Right
from exporter.timefmt import format_duration, rfc3339

_PREFIX = "scheduled-events-exporter/"
CORDONED = f"{_PREFIX}cordoned"
TAINT = f"{_PREFIX}pending"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
PLANNED = "MaintenancePlanned"
IN_PROGRESS = "MaintenanceInProgress"
DRAINING = "DrainInProgress"
DRAINED = "Drained"
# `kubectl drain` is to set these, too: https://github.com/kubernetes/enhancements/issues/6251.
_OF_DRAIN = (DRAINING, DRAINED)

_NAMESPACE = "default"  # of Events about Nodes
# The reason and the message of a condition that is False.
_NOTHING = ("NoScheduledEvent", "no scheduled event of this VM")
_FALSE = {
    PLANNED: _NOTHING,
    IN_PROGRESS: _NOTHING,
    DRAINING: ("NoDrain", "no drain for a scheduled event of this VM is in progress"),
    DRAINED: ("NotDrained", "not drained for a scheduled event of this VM"),
}
# Of a condition with another event, see `description`.
_DESCRIBED = re.compile(r".+ \S+, (not before \S+|NotBefore unknown), duration .+", re.DOTALL)
_LABEL = "scheduled-events-exporter"  # tells our label from that of others, who set it to "true" or ""
_FACTS = tuple(f"{_PREFIX}{name}" for name in ("type", "event-id", "not-before", "duration"))
# Who else drains the Node while one of these taints is there: AKS, Karpenter, cluster-autoscaler.
_OTHERS = (
    "remediator.kubernetes.azure.com/unschedulable",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
)
_LONGEST_SECONDS = 1e9  # beyond all dates
# For evictions before an event without any notice; the VM may go down at any moment.
_NO_NOTICE = timedelta(seconds=30)

Patch = dict[str, Any]


class Progress(Enum):
    """How far the drain of a Node is."""

    NONE = auto()
    DRAINING = auto()
    DRAINED = auto()


def rights(node: str, settings: Kubernetes) -> list[Right]:
    """Return the rights that the service account needs for what is configured."""
    drain = settings.drain
    needed = [Right("get", "nodes", name=node), Right("patch", "nodes", name=node)]
    if settings.conditions:
        needed += [Right("patch", "nodes/status", name=node), Right("create", "events", _NAMESPACE)]
    if drain.enabled and drain.mode != "cordon":
        needed.append(Right("list", "pods"))
    if drain.evicts:
        needed += [Right("create", "pods/eviction"), Right("create", "events")]
        if drain.delete_before:
            needed.append(Right("delete", "pods"))
    return needed


def own_lives(snapshot: Snapshot) -> list[Life] | None:
    """Return the events of this VM, the most urgent first; None while they are not known.

    They are not before the first document, as an event of the state may be over, nor while this VM does not
    know its name.
    """
    if not snapshot.ready or snapshot.instance is None:
        return None
    if any(life.affects is None for life in snapshot.current):
        return None
    return [life for life in snapshot.current if life.target is Affected.SELF]


def description(life: Life) -> str:
    event, not_before = life.event, life.event.not_before or life.announced
    begins = f"not before {rfc3339(not_before)}" if not_before else "NotBefore unknown"
    seconds = event.duration_seconds
    lasts = "duration unknown" if seconds is None else f"duration {format_duration(seconds)}"
    return f"{event.event_type} {life.ids[0]}, {begins}, {lasts}"


def annotations(node: Node, lives: Iterable[Life]) -> Patch:
    life = next((life for life in lives if _is_maintenance(life.event)), None)
    wanted: dict[str, str | None] = dict.fromkeys(_FACTS)
    if life is not None:
        event, seconds = life.event, life.event.duration_seconds
        lasts = None if seconds is None else format_duration(seconds)
        values = (event.event_type, life.ids[0], rfc3339(event.not_before or life.announced), lasts)
        wanted = dict(zip(_FACTS, values, strict=True))
    changes = {key: value for key, value in wanted.items() if node.metadata.annotations.get(key) != value}
    return {"metadata": {"annotations": changes}} if changes else {}


def conditions(
    node: Node,
    lives: Iterable[Life],
    drained: Sequence[Life],
    progress: Progress | None,
    now: datetime,
    *,
    has_drain: bool,
) -> Patch:
    """Return the changes of the conditions about the events, and about the drain for those in ``drained``.

    Conditions about the drain stay while its ``progress`` is not known, and those of others, such as of an
    administrator's `kubectl drain`, while there is no drain. Without ``has_drain``, ours are deleted.
    """
    lives = [life for life in lives if _is_maintenance(life.event)]
    true = {
        PLANNED: [life for life in lives if not life.event.is_started],
        IN_PROGRESS: [life for life in lives if life.event.is_started],
    }
    if has_drain and not (drained and progress is None):
        true[DRAINING] = [*drained] if progress is Progress.DRAINING else []
        true[DRAINED] = [*drained] if progress is Progress.DRAINED else []
    conditions = {condition.type: condition for condition in node.status.conditions}
    changed = [] if has_drain else _deleted(node, _OF_DRAIN)
    for kind, affecting in true.items():
        before = conditions.get(kind)
        if kind in _OF_DRAIN and not affecting and before is not None and not _is_ours(before):
            continue
        reason, message = (
            (_word(affecting[0].event.event_type), _message(affecting)) if affecting else _FALSE[kind]
        )
        status = "True" if affecting else "False"
        wanted = {"type": kind, "status": status, "reason": reason, "message": message}
        if before is not None and all(getattr(before, key) == value for key, value in wanted.items()):
            continue
        times = {"lastHeartbeatTime": rfc3339(now)}
        if before is None or before.status != status:
            times["lastTransitionTime"] = rfc3339(now)
        changed.append(wanted | times)
    return _conditions(changed)


def without_conditions(node: Node) -> Patch:
    """Return the changes that delete the conditions of this program."""
    return _conditions(_deleted(node, _FALSE))


def _deleted(node: Node, kinds: Container[str]) -> list[Patch]:
    return [
        {"$patch": "delete", "type": condition.type}
        for condition in node.status.conditions
        if condition.type in kinds and _is_ours(condition)
    ]


def _is_ours(condition: Condition) -> bool:
    """Return whether this program has set a condition, by its message."""
    return condition.message == _FALSE[condition.type][1] or bool(_DESCRIBED.fullmatch(condition.message))


def _conditions(changed: Sequence[Patch]) -> Patch:
    return {"status": {"conditions": changed}} if changed else {}


def is_marked(node: Node) -> bool:
    """Return whether this program has marked the Node in any way."""
    return bool(_unmarked(node) or annotations(node, ()) or without_conditions(node))


def unmarking(node: str) -> list[str]:
    """Return the commands that remove all marks of a Node, for where this program cannot."""
    name = shlex.quote(node)
    deleted = [{"$patch": "delete", "type": kind} for kind in _FALSE]
    patch = shlex.quote(json.dumps(_conditions(deleted)))
    ours = f"--field-selector=metadata.name={name} --selector={EXCLUDED}={_LABEL}"
    return [
        f"kubectl uncordon {name}",
        f"kubectl taint node {name} {TAINT}-",
        f"kubectl annotate node {name} {' '.join(f'{key}-' for key in (CORDONED, *_FACTS))}",
        f"kubectl label nodes {ours} {EXCLUDED}-",
        f"kubectl patch node {name} --subresource=status --type=strategic --patch={patch}",
    ]


def _message(lives: Sequence[Life]) -> str:
    more = f" (and {len(lives) - 1} more)" if len(lives) > 1 else ""
    return description(lives[0]) + more


def _is_maintenance(event: ScheduledEvent) -> bool:
    """Return whether the Node does not survive it as it is, and it is more than advice."""
    return event.event_type != "Freeze" and (event.is_scheduled or event.is_started)


def _word(text: str) -> str:
    """Return a text as the reason of a condition or the value of a taint may be."""
    return re.sub(r"^[^A-Za-z]+|[^A-Za-z0-9]", "", text)[:63] or "Unknown"


def to_drain(lives: Iterable[Life], node: Node, drain: Drain, now: datetime) -> list[Life]:
    """Return the events for which the Node is to be cordoned now, the most urgent first."""
    skipped = any(node.metadata.labels.get(label) == value for label, value in drain.skip_node_labels.items())
    if skipped or not drain.enabled:
        return []
    return [life for life in lives if (at := _begins(life, node, drain, now)) is not None and at <= now]


def next_begin(lives: Iterable[Life], node: Node, drain: Drain, now: datetime) -> datetime | None:
    """Return when the next event begins to be one of `to_drain`."""
    times = (_begins(life, node, drain, now) for life in lives)
    return min((at for at in times if at is not None and at > now), default=None)


def _begins(life: Life, node: Node, drain: Drain, now: datetime) -> datetime | None:
    """Return from when on the Node is to be cordoned for an event; None if it is not."""
    event, match = life.event, drain.match
    if _marked_for(node, life):
        # The passing of time does not end what it has begun.
        match = replace(match, min_notice=None, max_notice=None, windows=None)
    if not (event.is_scheduled or event.is_started) or not match.holds(event, target=Affected.SELF, now=now):
        return None
    if event.is_started or not drain.before or event.not_before is None:
        return now
    return event.not_before - timedelta(seconds=min(drain.before, _LONGEST_SECONDS))


def _marked_for(node: Node, life: Life) -> bool:
    mark = node.metadata.annotations.get(CORDONED, "").lower()
    return mark in (event_id.lower() for event_id in life.ids)


def deadline(life: Life) -> datetime | None:
    """Return the time after which nothing is evicted for an event; None if it is not known."""
    if life.event.is_scheduled:
        return life.event.not_before
    started = life.since(Transition.STARTED) or life.first_seen
    return started if life.has(Transition.SCHEDULED) else started + _NO_NOTICE


def drained_by_others(node: Node) -> str:
    """Return the taint of AKS or an autoscaler that drains the Node itself; "" if there is none."""
    return next((taint["key"] for taint in node.spec.taints if taint.get("key") in _OTHERS), "")


def cordon(node: Node, wanted: Sequence[Life], drain: Drain) -> Patch:
    """Return the changes by which the Node is cordoned for these events, or no longer is.

    Whether this program cordoned it is known by its mark, which is set in the same request.
    """
    if drained_by_others(node):
        return {}
    return _marked(node, wanted, drain) if wanted else _unmarked(node)


def merged(*patches: Patch) -> Patch:
    result: Patch = {}
    for patch in patches:
        for key, value in patch.items():
            result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def _marked(node: Node, wanted: Sequence[Life], drain: Drain) -> Patch:
    life = next((life for life in wanted if _marked_for(node, life)), wanted[0])
    taint = {"key": TAINT, "value": _word(life.event.event_type), "effect": "NoSchedule"}
    metadata: Patch = {}
    spec: Patch = {}
    cordoned_here = CORDONED in node.metadata.annotations
    if (cordoned_here or not node.spec.unschedulable) and not _marked_for(node, life):
        metadata["annotations"] = {CORDONED: life.ids[0]}
    if drain.exclude_from_load_balancers and EXCLUDED not in node.metadata.labels:
        metadata["labels"] = {EXCLUDED: _LABEL}
    elif not drain.exclude_from_load_balancers and node.metadata.labels.get(EXCLUDED) == _LABEL:
        metadata["labels"] = {EXCLUDED: None}
    if not node.spec.unschedulable:
        spec["unschedulable"] = True
    if not any(taint.items() <= present.items() for present in node.spec.taints):
        spec["taints"] = [*_foreign_taints(node), taint]
    return _patch(metadata, spec)


def _unmarked(node: Node) -> Patch:
    metadata: Patch = {}
    spec: Patch = {}
    if CORDONED in node.metadata.annotations:
        metadata["annotations"] = {CORDONED: None}
        if node.spec.unschedulable and not node.is_cordoned_by_others:
            spec["unschedulable"] = None
    if node.metadata.labels.get(EXCLUDED) == _LABEL:
        metadata["labels"] = {EXCLUDED: None}
    if len(foreign := _foreign_taints(node)) < len(node.spec.taints):
        spec["taints"] = foreign
    return _patch(metadata, spec)


def _patch(metadata: Patch, spec: Patch) -> Patch:
    return ({"metadata": metadata} if metadata else {}) | ({"spec": spec} if spec else {})


def _foreign_taints(node: Node) -> list[Mapping[str, Any]]:
    return [taint for taint in node.spec.taints if taint.get("key") != TAINT]


# The API server deletes Events after an hour, and older ones are no longer of interest.
_RECENT = timedelta(hours=1)
_MOST_RECENT = 50  # per Node: a source of hostile documents must not flood the API server


def recent(snapshot: Snapshot, now: datetime) -> Iterator[tuple[str, Life, TransitionRecord]]:
    """Yield the recent transitions of events of this VM with an identity, the newest first."""
    records = [
        (record.at, f"{life.key}/{number}/{record.transition}", life, record)
        for life in (*snapshot.current, *snapshot.past)
        if life.affects is Affected.SELF
        for number, record in enumerate(life.transitions, start=1)
        if now - record.at < _RECENT
    ]
    records.sort(key=lambda record: record[0], reverse=True)
    return ((identity, life, record) for _, identity, life, record in records[:_MOST_RECENT])


def node_event(node: Node, identity: str, life: Life, record: TransitionRecord) -> dict[str, Any]:
    grave = severity(record.transition, life.event.event_type).value not in ("info", "success")
    words = record.transition.value.split("_")
    return _event(
        {"kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid},
        (_NAMESPACE, node.metadata.name),
        identity=(identity,),
        at=record.at,
        type="Warning" if grave else "Normal",
        reason="ScheduledEvent" + "".join(word.capitalize() for word in words),
        message=f"{' '.join(words)}: {description(life)}",
    )


def pod_event(
    pod: Pod, node: str, lives: Sequence[Life], at: datetime, *, deleted: bool = False
) -> dict[str, Any]:
    """Return the Event about a pod that was evicted, or ``deleted`` in spite of its disruption budget."""
    done = "deleted in spite of its disruption budget" if deleted else "evicted"
    return _event(
        {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        (pod.namespace, node),
        identity=(pod.name, pod.uid, *(["deleted"] if deleted else [])),
        at=at,
        type="Warning" if deleted else "Normal",
        reason="ScheduledEventDeletion" if deleted else "ScheduledEventEviction",
        message=f"{done} from Node {node} before {description(lives[0])}",
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
