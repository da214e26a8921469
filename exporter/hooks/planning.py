"""The hook jobs of transitions and the environment variables of hooks, as pure functions.

A hook runs as the exporter's user and could read the exporter's secrets. But its output is logged, and its
child processes inherit its variables: a secret that is not passed to it does not leak by mistake.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from exporter.config import Hook
from exporter.model.jobs import Job
from exporter.model.lifecycle import Occurrence, Transition
from exporter.model.views import event_view
from exporter.timefmt import rfc3339

# Of one variable. Linux's limit is 128 KiB, Windows' 32,767 characters.
MOST_BYTES = 32_000
# Addresses, headers and key files of receivers, URLs of targets, systemd's directory of credentials.
_WITHHELD = re.compile(r"OTEL_.*|SCHEDULED_EVENTS_.*|CREDENTIALS_DIRECTORY|NOTIFY_SOCKET")
# Up to the last @: a password may contain one that is not encoded.
_USERINFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@")


def compose(
    hooks: Sequence[Hook], occurrences: Iterable[Occurrence], *, instance: str | None, now: datetime
) -> tuple[Job, ...]:
    """Return the jobs for transitions, in the order in which those of one event run.

    There are none while this VM's name is unknown, because the event may be another VM's.
    """
    if instance is None:
        return ()
    return tuple(
        _job(hook, one, one.life.instance or instance)
        for one in occurrences
        for hook in hooks
        if _runs_for(hook, one, now)
    )


def _runs_for(hook: Hook, occurrence: Occurrence, now: datetime) -> bool:
    life, transition = occurrence.life, occurrence.transition
    # Hooks run for failures of hooks only if these are listed.
    if transition is Transition.HOOK_FAILED and hook.match.transitions is None:
        return False
    return hook.match.holds(life.event, target=life.target, now=now, transition=transition)


def _job(hook: Hook, occurrence: Occurrence, instance: str) -> Job:
    life = occurrence.life
    return Job(
        hook=hook.name,
        key=life.key,
        sequence=len(life.transitions),
        transition=occurrence.transition,
        at=occurrence.at,
        instance=instance,
        event=event_view(life),
        resource_type=life.event.resource_type,
        nameless=life.nameless,
    )


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


def environment(job: Job, attempt: int, traceparent: str = "") -> dict[str, str]:
    """Return the variables that describe a job to its hook, to be added to those of the exporter.

    ``EVENT_ID`` is the event's first id, as in the JSON, so that hooks can pass on notes under it. Times are
    RFC 3339 in UTC, durations whole seconds; what is unknown is empty. ``EVENT_RESOURCES`` is cut between two
    names: half a name may be that of another VM.
    """
    event, duration = job.event, job.event.duration_seconds
    values = {
        "EVENT_ID": event.id,
        "EVENT_TYPE": event.type,
        "EVENT_STATUS": event.status,
        "EVENT_SOURCE": event.source,
        "EVENT_NOTBEFORE": rfc3339(event.not_before) or "",
        "EVENT_RESOURCETYPE": job.resource_type,
        "EVENT_DESCRIPTION": event.description,
        "EVENT_DURATION": "" if duration is None else str(duration),
        "EVENT_TRANSITION": job.transition.value,
        "EVENT_ATTEMPT": str(attempt),
        "INSTANCE_NAME": job.instance,
        "TRACEPARENT": traceparent,
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
