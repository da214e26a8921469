"""Hooks: the jobs that transitions cause, and the loop that runs each once, in order for an event.

A hook runs as the exporter's user and could read the exporter's secrets. But its output is logged, and its
child processes inherit its variables: a secret that is not passed to it does not leak by mistake.
"""

import logging
import re
import sys
import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from exporter.config import Hook
from exporter.config.addresses import variables
from exporter.config.loading import Loaded
from exporter.model.events import lower, trace_id
from exporter.model.jobs import HookOutcome, Job, JobKey
from exporter.model.lifecycle import ENDINGS, Occurrence, Step, Transition
from exporter.model.messages import Severity
from exporter.model.reports import hook_failure
from exporter.model.tracing import traceparent
from exporter.model.views import EventView, Snapshot, WorkView, event_view
from exporter.outputs.hooks.section import HooksSection
from exporter.outputs.output import Core, Output, failures
from exporter.state.jobs import End, Jobs, Record
from exporter.timefmt import UtcTime, rfc3339
from exporter.work import Loop

if TYPE_CHECKING:
    from exporter.outputs.hooks.command import CommandResult

log = logging.getLogger(__name__)

MOST_BYTES = 32_000  # of one variable; Linux's limit is 128 KiB, Windows' 32,767 characters
# Addresses, headers and key files of receivers, URLs of targets, systemd's directory of credentials.
_WITHHELD = re.compile(r"OTEL_.*|SCHEDULED_EVENTS_.*|CREDENTIALS_DIRECTORY|NOTIFY_SOCKET")
# Up to the last @: a password may contain one that is not encoded.
_USERINFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@")


class Run(msgspec.Struct, frozen=True):
    """One run of one hook, with the facts at the time of the transition."""

    transition: Transition
    at: UtcTime
    instance: str
    event: EventView
    resource_type: str
    traceparent: str = ""  # the W3C header that makes what the hook sends a part of the event's trace

    def document(self, attempt: int) -> bytes:
        """Return the command's input: the API's EVENT as JSON, with ``transition``, ``at``, ``instance``."""
        facts = {"transition": self.transition, "at": self.at, "instance": self.instance, "attempt": attempt}
        return msgspec.json.encode({**msgspec.to_builtins(self.event), **facts})


_runs = msgspec.json.Decoder(Run)


def _runs_for(hook: Hook, occurrence: Occurrence, now: datetime) -> bool:
    life, transition = occurrence.life, occurrence.transition
    # Hooks run for failures of hooks only if these are listed.
    if transition is Transition.HOOK_FAILED and hook.match.transitions is None:
        return False
    return hook.match.holds(life.event, target=life.target, now=now, transition=transition)


def inherited(environ: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that hooks inherit: not those ``named`` in ``${...}``, no passwords of proxies."""
    # On Windows, names of variables are not case-sensitive.
    folded = {_fold(name) for name in named}
    return {
        name: _USERINFO.sub(r"\1", value) if name.lower().endswith("_proxy") else value
        for name, value in environ.items()
        if _fold(name) not in folded and not _WITHHELD.fullmatch(_fold(name))
    }


def _fold(name: str) -> str:
    return name.upper() if sys.platform == "win32" else name


def environment(run: Run, attempt: int) -> dict[str, str]:
    """Return the variables that describe a run to its hook, to be added to those of the exporter.

    ``EVENT_ID`` is the event's first id, as in the JSON, so that hooks can pass on notes under it. Times are
    RFC 3339 in UTC, durations whole seconds; what is unknown is empty. ``EVENT_RESOURCES`` is cut between two
    names: half a name may be that of another VM.
    """
    event, duration = run.event, run.event.duration_seconds
    values = {
        "EVENT_ID": event.id,
        "EVENT_TYPE": event.type,
        "EVENT_STATUS": event.status,
        "EVENT_SOURCE": event.source,
        "EVENT_NOTBEFORE": rfc3339(event.not_before) or "",
        "EVENT_RESOURCETYPE": run.resource_type,
        "EVENT_DESCRIPTION": event.description,
        "EVENT_DURATION": "" if duration is None else str(duration),
        "EVENT_TRANSITION": run.transition.value,
        "EVENT_ATTEMPT": str(attempt),
        "INSTANCE_NAME": run.instance,
        "TRACEPARENT": run.traceparent,
    }
    return {name: cut(clean(value)) for name, value in values.items()} | {
        "EVENT_RESOURCES": cut(clean(",".join(event.resources)), between=",")
    }


def clean(value: str) -> str:
    """Remove NUL, which ends a variable, and replace lone surrogates, which cannot be encoded, by U+FFFD."""
    # A pair of surrogates becomes the character that it encodes.
    return value.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(value: str, *, between: str = "") -> str:
    """Cut to `MOST_BYTES` of UTF-8, if possible at the last ``between`` before the limit."""
    encoded = value.encode()
    if len(encoded) <= MOST_BYTES:
        return value
    kept = encoded[: MOST_BYTES + len(between)].decode(errors="ignore")
    if between and between in kept:
        return kept[: kept.rindex(between)]
    return encoded[:MOST_BYTES].decode(errors="ignore")


MOST_AT_ONCE = 8  # events whose hooks run at the same time


class HookRunner(Output):
    """Runs the jobs of hooks; it starts threads only if there are jobs."""

    name = "hooks"
    section = HooksSection()
    stop_seconds = 9.0

    def __init__(self, core: Core) -> None:
        # The lane is the event's first id: hooks of all its lives run in order.
        self._jobs = core.store.jobs(self.name, Jobs)
        self._metrics, self._clock, self._inbox = core.metrics, core.clock, core.inbox
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._stopping = threading.Event()
        self._loops = [Loop("hooks", self._work) for _ in range(MOST_AT_ONCE)]
        self._inbox.put(*failures(self._jobs))

    def configure(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        """Set the hooks, and the variables without secrets that they inherit; pending jobs use them, too."""
        hooks = loaded.config.hooks
        self._metrics.hooks.expect(hook.name for hook in hooks)
        if hooks:
            self._metrics.expect(Transition.HOOK_FAILED)
        self._inherited = inherited(environ, variables(loaded.config))
        self._hooks = {hook.name: hook for hook in hooks}
        self.wake()

    def compose(self, step: Step, seen: Snapshot) -> list[Job]:
        """Return the jobs for transitions, in the order in which those of one event run.

        There are none while this VM's name is unknown, because the event may be another VM's, nor for the end
        of a life that began and ended before a document was read with the name. The end of a life takes back
        what has not begun, and an update what has not begun for earlier ones.
        """
        now, is_named = self._clock.now(), seen.instance is not None
        runs = [
            (occurrence, hook.name)
            for occurrence in (*step.awaited, *step.occurrences)
            if is_named and occurrence.life.affects is not None
            for hook in self._hooks.values()
            if _runs_for(hook, occurrence, now)
        ]
        ended = [occurrence.life.key for occurrence in step.occurrences if occurrence.transition in ENDINGS]
        back = [key for life in (*ended, *step.forgotten) for key, _ in self._jobs.of(life)]
        for occurrence, hook in runs:
            if occurrence.transition is Transition.UPDATED:
                records = enumerate(occurrence.life.transitions, start=1)
                updates = {number for number, record in records if record.transition is Transition.UPDATED}
                runs_of = self._jobs.of(occurrence.life.key)
                back += [key for key, _ in runs_of if key.name == hook and key.sequence in updates]
        return [*(Job(self.name, key) for key in back), *(self._job(*run, seen) for run in runs)]

    def _job(self, occurrence: Occurrence, hook: str, seen: Snapshot) -> Job:
        life, number = occurrence.life, len(occurrence.life.transitions)
        run = Run(
            transition=occurrence.transition,
            at=occurrence.at,
            instance=life.instance or seen.instance or "",
            event=event_view(life),
            resource_type=life.event.resource_type,
            traceparent=traceparent(life, ("hook", hook, str(number)), seen),
        )
        key = JobKey(lower(life.ids[0]), life.key, number, hook)
        return Job(self.name, key, msgspec.Raw(msgspec.json.encode(run)))

    def work(self, life_key: str) -> list[WorkView]:
        return self._jobs.views(life_key, "hook")

    def wake(self) -> None:
        """Run recorded jobs; one thread is started per event with jobs, up to `MOST_AT_ONCE`."""
        for hook, count in self._jobs.take_dropped().items():
            self._metrics.hooks.dropped(hook, count)
            log.warning("hook runs dropped: too many are waiting", extra={"hook": hook, "count": count})
        for loop, _ in zip(self._loops, self._jobs.counts(), strict=False):
            loop.start()
        for loop in self._loops:
            loop.wake()

    def begin_stop(self) -> None:
        """End the running commands; they run again after the next start."""
        self._stopping.set()
        for loop in self._loops:
            loop.stop()

    def stop(self, timeout: float) -> bool:
        self.begin_stop()
        deadline = self._clock.monotonic() + timeout
        return all(loop.join(deadline - self._clock.monotonic()) for loop in self._loops)

    def _work(self) -> float | None:
        """Run the next hook of an event without a running hook; return None if there is none."""
        with self._lock:
            event = next((event for event in self._jobs.counts() if event not in self._busy), None)
            if event is None:
                return None
            self._busy.add(event)
        try:
            for key, record in self._jobs.first(event, 1):
                self._run(key, record)
        finally:
            with self._lock:
                self._busy.discard(event)
        return 0.0

    def _run(self, key: JobKey, record: Record) -> None:
        run, hook = record.read(_runs), self._hooks.get(key.name)
        if run is None or hook is None:
            if run is not None:
                log.warning("pending hook is no longer configured", extra=_facts(key, run))
            self._jobs.finish([key], End(None, self._clock.now()))
            return
        attempt = self._jobs.begin(key)
        if not attempt:
            return
        facts = _facts(key, run) | {"attempt": attempt}
        log.info("hook started", extra=facts)
        begun = self._clock.now()
        result = self._execute(hook, run, attempt, facts)
        if result.stopped:
            log.warning("hook interrupted; it runs again after the next start", extra=facts)
            return
        now = self._clock.now()
        problem = "" if result.outcome is HookOutcome.SUCCEEDED else result.reason
        self._jobs.finish([key], End(result.outcome, now, begun, problem))
        self._metrics.hooks.ended(hook.name, result.outcome, result.seconds)
        succeeded = result.outcome is HookOutcome.SUCCEEDED
        ends = {"outcome": result.outcome, "reason": result.reason, "seconds": result.seconds}
        log.log(logging.INFO if succeeded else logging.WARNING, "hook ended", extra=facts | ends)
        if succeeded:
            # An approval may have waited for it.
            self._inbox.put()
            return
        if run.transition is Transition.HOOK_FAILED:
            # This failure becomes no transition, with which it would be counted.
            self._metrics.hooks.failed(hook.name, Severity.WARNING)
        reason = f"{result.reason}; output: {result.output}" if result.output else result.reason
        self._inbox.put(hook_failure(key, result.outcome, now, reason))

    def _execute(self, hook: Hook, run: Run, attempt: int, facts: Mapping[str, object]) -> "CommandResult":
        # Imported on first use: most VMs have no hooks.
        from exporter.outputs.hooks import command

        document, variables = run.document(attempt), environment(run, attempt)
        return command.run(
            command.Command(hook.command, document, variables, float(hook.timeout), self._inherited),
            output=lambda line: log.info("hook output", extra={**facts, "line": line}),
            stop=self._stopping,
            clock=self._clock,
        )


def _facts(key: JobKey, run: Run) -> dict[str, object]:
    return {
        "hook": key.name,
        "transition": run.transition,
        "event_id": run.event.id,
        "trace_id": trace_id(run.event.id),
        "event_type": run.event.type,
    }
