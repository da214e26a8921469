"""Log records of transitions, of the watch and of the exporter, built without OpenTelemetry's SDK.

Their ``log.record.uid`` follows from the facts (semantic conventions, "General logs attributes").
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from exporter.health import Problem
from exporter.model.events import trace_id
from exporter.model.lifecycle import ENDINGS, Occurrence
from exporter.model.messages import SUCCESS, WARNING, Outage, WatchChange, severity, severity_of
from exporter.model.telemetry import Attribute, LogRecord
from exporter.model.wording import duration, printable
from exporter.outputs.otlp.spans import PREFIX, life_attributes, root_span_id, transition_attributes
from exporter.timefmt import rfc3339

_NAMESPACE = uuid.UUID("7b5e9b1e-8a0c-5d0e-9a55-6f1f1a0f6f0b")
_LONGEST_BODY = 500


def transition_record(occurrence: Occurrence, vm: str, *, sampled: bool) -> LogRecord:
    """Return the record of a transition; ``vm`` is what identifies this VM in the span ids of the life.

    ``sampled`` is whether the spans of the life are exported.
    """
    life, transition = occurrence.life, occurrence.transition
    changes = [change.brief for change in occurrence.changes]
    attributes = life_attributes(life) | transition_attributes(life.transitions[-1], changes)
    attributes |= {PREFIX + "transition": transition.value, PREFIX + "target": life.target.value}
    if transition in ENDINGS:
        attributes[PREFIX + "outcome"] = transition.value
    if occurrence.detail:
        attributes[PREFIX + "detail"] = occurrence.detail
    return LogRecord(
        name=PREFIX + transition.value,
        end=occurrence.at,
        severity=severity_of(occurrence).value,
        body=_line(occurrence, vm),
        attributes=attributes,
        uid=_uid(vm, life.key, str(len(life.transitions))),
        trace_id=trace_id(life.ids[0]),
        span_id=root_span_id(life, vm),
        sampled=sampled,
    )


def _line(occurrence: Occurrence, vm: str) -> str:
    life, event = occurrence.life, occurrence.life.event
    parts = [f"{event.event_type} {occurrence.transition.value.replace('_', ' ')}: {life.instance or vm}"]
    if event.not_before and not life.ended:
        parts.append(f"not before {rfc3339(event.not_before)}")
    parts += [text for text in (occurrence.detail, f"event {life.ids[0]}", event.description) if text]
    return _one_line(", ".join(parts))


def watch_record(change: WatchChange, outage: Outage, vm: str, at: datetime, error: str) -> LogRecord:
    """Return the record of the begin or the end of an outage of the watch."""
    since = rfc3339(outage.since)
    if change is WatchChange.BLIND:
        body = f"no valid document from IMDS since {since}" + (f": {error}" if error else "")
        attributes = {"since": since, "error": error}
    else:
        body = f"IMDS returns valid documents again, after {duration((at - outage.since).total_seconds())}"
        attributes = {"since": since, "reason": WatchChange.BLIND.value}
    return _other(change.value, at, severity(change).value, body, attributes, (vm, outage.key))


def problem_record(problem: Problem, vm: str, at: datetime, *, begins: bool) -> LogRecord:
    """Return the record of the begin or the end of a problem of the exporter."""
    attributes = {"reason": problem.reason.value, "problem": problem.message}
    since = rfc3339(problem.since, milliseconds=True)
    facts = (vm, problem.reason, problem.message, since)
    if begins:
        return _other("degraded", at, WARNING.value, f"degraded: {problem.message}", attributes, facts)
    return _other("recovered", at, SUCCESS.value, f"over: {problem.message}", attributes, facts)


def pause_record(seconds: float, vm: str, at: datetime) -> LogRecord:
    """Return the record of a pause of this VM that no event announced."""
    body = f"this VM stood still for {seconds:.1f} s while no event was Started for it"
    attributes = {"pause_seconds": str(round(seconds, 3))}
    return _other("unannounced_pause", at, WARNING.value, body, attributes, (vm, at.isoformat()))


def _other(  # noqa: PLR0917  # it is called in this module alone
    name: str, at: datetime, level: str, body: str, attributes: Mapping[str, str], facts: Sequence[str]
) -> LogRecord:
    known: dict[str, Attribute] = {PREFIX + key: value for key, value in attributes.items() if value}
    return LogRecord(PREFIX + name, at, level, _one_line(body), known, _uid(name, *facts))


def _one_line(text: str) -> str:
    return printable(text)[:_LONGEST_BODY]


def _uid(*facts: str) -> str:
    # A name from the command line may not be valid Unicode.
    text = "\0".join(facts).encode(errors="backslashreplace").decode()
    return str(uuid.uuid5(_NAMESPACE, text))
