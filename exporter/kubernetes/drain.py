"""The drain: evicts the pods of the Node until none is left or NotBefore has passed."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from exporter.config.kubernetes import Drain
from exporter.kubernetes.client import MOST_AT_ONCE, TIMEOUT_SECONDS, Client
from exporter.kubernetes.desired import deadline
from exporter.kubernetes.events import eviction_event
from exporter.kubernetes.objects import KubernetesError, Pod
from exporter.kubernetes.reports import Reports
from exporter.metrics import EvictionOutcome
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Life

log = logging.getLogger(__name__)

T = TypeVar("T")

# Between two attempts to evict a pod that a PodDisruptionBudget protects.
_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 2.0
# Nothing is sent so shortly before the deadline that it might arrive after it.
_LAST_SECONDS = 1.0
# So that pods that use up their grace period are seen to be gone before the deadline.
_MARGIN_SECONDS = 5.0
_MOST_LOGGED = 50


class Selection(NamedTuple):
    """The pods to evict, those that are terminating, and those that nothing would replace and that stay."""

    evictable: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    kept: tuple[Pod, ...] = ()


class Drainer:
    """Drains one Node; used by one thread, except for `doing` and `stopping`."""

    def __init__(self, client: Client, node: str, settings: Drain, reports: Reports) -> None:
        self._client = client
        self._node = node
        self._settings = settings
        self._reports = reports
        self._clock = reports.clock
        self._begun: dict[str, datetime] = {}
        # Why pods are still there, and the pods that an Event or a log line is about, by their UIDs.
        self._reasons: dict[str, str] = {}
        self._noted: set[str] = set()
        self._fresh: list[Pod] = []
        self.doing = ""
        self.stopping = False

    def forget(self) -> None:
        """Forget the last drain; call it while there is none."""
        self._begun, self._reasons, self._noted, self.doing = {}, {}, set(), ""

    def step(self, lives: Sequence[Life], instance: str, obstacle: str) -> float | None:
        """Evict what can be, unless there is an ``obstacle``; return the seconds until the next call."""
        pending = self._pending(lives)
        delay = self._drain(pending, instance, obstacle) if pending else None
        self._conclude(lives, instance)
        return delay

    def miss(self, lives: Sequence[Life], instance: str, reason: str) -> None:
        """Take note that nothing could be done for these events."""
        if self._pending(lives):
            self.doing = reason
        self._conclude(lives, instance)

    def _pending(self, lives: Sequence[Life]) -> list[Life]:
        """Return the events whose deadline has not passed; note since when the Node is drained for each."""
        now = self._clock.now()
        self._begun = {life.key: self._begun.get(life.key, now) for life in lives}
        return [life for life in lives if (until := deadline(life)) is None or now < until]

    def _conclude(self, lives: Sequence[Life], instance: str) -> None:
        """Record that the drain failed for events whose deadline has passed."""
        for life in lives if self._settings.evicts else ():
            begun, until = self._begun[life.key], deadline(life)
            # What began after the deadline, such as after a restart, did not try.
            if until is not None and begun < until <= self._clock.now():
                self._reports.record(life, instance, HookOutcome.FAILED, begun, self.doing)

    def _drain(self, lives: Sequence[Life], instance: str, obstacle: str) -> float | None:
        self._until = min((at for life in lives if (at := deadline(life)) is not None), default=None)
        found = select(self._client.pods(self._node), self._settings, self._until)
        self._note_kept(found.kept)
        if self._settings.mode == "dry_run":
            self._pretend(found.evictable)
        elif not obstacle:
            self._evict_all(found.evictable, lives)
        self.doing = self._describe(found, obstacle)
        if not found.evictable and not found.terminating:
            for life in lives if self._settings.evicts else ():
                begun = self._begun[life.key]
                self._reports.record(life, instance, HookOutcome.SUCCEEDED, begun, "no pod is left")
            return None
        refused = any(self._reasons.get(pod.metadata.uid) for pod in found.evictable)
        return self._pause(_RETRY_SECONDS if refused else _LOOK_SECONDS)

    def _pause(self, pause: float) -> float:
        """Return the seconds until the next look: the last one is just before the deadline."""
        left = self._left()
        if left is None:
            return pause
        return min(pause, left - _LAST_SECONDS) if left > _LAST_SECONDS else _LAST_SECONDS

    def _left(self) -> float | None:
        return None if self._until is None else (self._until - self._clock.now()).total_seconds()

    def _may_send(self) -> bool:
        left = self._left()
        return not (self.stopping or self._halted or (left is not None and left <= _LAST_SECONDS))

    def _evict_all(self, pods: Iterable[Pod], lives: Sequence[Life]) -> None:
        self._halted, self._fresh = False, []
        _in_parallel(self._evict, pods)
        # After all evictions, as every second may count for those.
        at = self._clock.now()
        events = [eviction_event(pod, self._node, lives, at) for pod in self._fresh]
        _in_parallel(self._create_event, events)

    def _evict(self, pod: Pod) -> None:
        if not self._may_send():
            return
        left = self._left()
        period, uid = grace(pod, self._settings, left), pod.metadata.uid
        try:
            self._client.evict(pod, period, min(TIMEOUT_SECONDS, left or TIMEOUT_SECONDS))
        except KubernetesError as error:
            if error.status not in (404, 409):
                self._refused(pod, error)
        else:
            self._reasons.pop(uid, None)
            self._reports.metrics.evicted(EvictionOutcome.EVICTED)
            log.info("pod evicted", extra={"pod": pod.name, "grace_seconds": period or pod.grace})
            if uid not in self._noted:
                self._noted.add(uid)
                self._fresh.append(pod)

    def _refused(self, pod: Pod, error: KubernetesError) -> None:
        by_budget = error.status == 429
        self._reports.metrics.evicted(EvictionOutcome.REFUSED if by_budget else EvictionOutcome.FAILED)
        if not by_budget:
            self._reports.report(error)
        # Without any answer, the others would wait for one, too.
        self._halted = self._halted or error.status is None
        reason = str(error).removeprefix(f"{error.call}: ")
        if self._reasons.get(pod.metadata.uid) != reason:
            log.warning("pod not evicted; trying again", extra={"pod": pod.name, "reason": reason})
        self._reasons[pod.metadata.uid] = reason

    def _create_event(self, event: dict[str, object]) -> None:
        if not self._may_send():
            return
        try:
            self._client.create_event(event)
        except KubernetesError as error:
            self._halted = self._halted or error.status is None
            if error.status != 409:
                self._reports.report(error)

    def _pretend(self, pods: Iterable[Pod]) -> None:
        for pod in self._unnoted(pods):
            self._reports.metrics.evicted(EvictionOutcome.DRY_RUN)
            log.info("dry run: pod would be evicted", extra={"pod": pod.name})

    def _note_kept(self, pods: Iterable[Pod]) -> None:
        if fresh := self._unnoted(pods):
            shown = names((pod.name for pod in fresh), most=_MOST_LOGGED)
            log.warning("pods without a controller are not evicted", extra={"pods": shown})

    def _unnoted(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return the pods that this is called with for the first time."""
        fresh = [pod for pod in pods if pod.metadata.uid not in self._noted]
        self._noted.update(pod.metadata.uid for pod in fresh)
        return fresh

    def _describe(self, found: Selection, obstacle: str) -> str:
        evicted = {pod.metadata.uid for pod in self._fresh}
        reasons = {
            pod.name: "terminating" if pod.metadata.uid in evicted else self._reasons.get(pod.metadata.uid)
            for pod in found.evictable
        } | {pod.name: "terminating" for pod in found.terminating}
        left = [f"{name} ({reason})" if reason else name for name, reason in reasons.items()]
        number = "1 pod is left" if len(left) == 1 else f"{len(left)} pods are left"
        parts = [f"{number}: {names(left)}" if left else "no pod is left"]
        if found.kept:
            parts.append(f"without a controller, not evicted: {names(pod.name for pod in found.kept)}")
        return "; ".join([*parts, *filter(None, [obstacle])])


def select(pods: Iterable[Pod], drain: Drain, until: datetime | None) -> Selection:
    """Sort the pods; one that terminates already, but would end later than ``until``, is evicted again."""
    evictable, terminating, kept = [], [], []
    for pod in pods:
        ends = pod.metadata.deletion_timestamp
        if pod.stays:
            continue
        if ends is not None and (until is None or ends <= until):
            terminating.append(pod)
        elif drain.force or pod.is_replaced or ends is not None:
            evictable.append(pod)
        else:
            kept.append(pod)
    return Selection(tuple(evictable), tuple(terminating), tuple(kept))


def grace(pod: Pod, drain: Drain, left: float | None) -> int | None:
    """Return the grace period in seconds, at most what is ``left``, if known; None for the pod's own."""
    seconds = int(drain.pod_grace_period) or pod.grace
    if left is not None:
        # With 0 the API server forgets the pod while its containers still run.
        seconds = min(seconds, max(int(left - min(_MARGIN_SECONDS, left / 5)), 1))
    return None if seconds == pod.grace else seconds


def names(pods: Iterable[str], most: int = 5) -> str:
    found = list(pods)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _in_parallel(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call ``work``, which raises nothing, for each item on a few threads."""
    waiting = deque(items)

    def run() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            work(item)

    # Unlike those of an executor, daemon threads do not keep the process from exiting.
    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(MOST_AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
