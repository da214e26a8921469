"""Log records of transitions, of the watch and of the exporter, composed from facts.

Their ``log.record.uid`` follows from the facts (semantic conventions, "General logs attributes").
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from exporter.model.events import trace_id
from exporter.model.facts import Fact, OutageFact, PauseFact, ProblemFact, TransitionFact
from exporter.model.lifecycle import ENDINGS, Occurrence
from exporter.model.messages import SUCCESS, WARNING, WatchChange, severity, severity_of
from exporter.model.tracing import root_id
from exporter.model.wording import duration, printable
from exporter.outputs.otlp.spans import PREFIX, life_attributes, transition_attributes
from exporter.outputs.otlp.telemetry import Attribute, LogRecord
from exporter.timefmt import rfc3339

_NAMESPACE = uuid.UUID("7b5e9b1e-8a0c-5d0e-9a55-6f1f1a0f6f0b")
_LONGEST_BODY = 500


def record_of(fact: Fact, host: str, sampled: Callable[[str], bool]) -> LogRecord | None:
    """Return the record of a fact, None for work, which has spans alone.

    ``host`` identifies this VM in the spans of lives that began without a name; ``sampled`` tells for the id
    of an event whether its spans are exported.
    """
    match fact:
        case TransitionFact():
            return _transition_record(fact, fact.occurrence.life.identity or host, sampled)
        case OutageFact():
            return _watch_record(fact)
        case ProblemFact():
            return _problem_record(fact)
        case PauseFact():
            return _pause_record(fact)
        case _:
            return None


def _transition_record(fact: TransitionFact, vm: str, sampled: Callable[[str], bool]) -> LogRecord:
    occurrence = fact.occurrence
    life, transition = occurrence.life, occurrence.transition
    attributes = life_attributes(life) | transition_attributes(life.transitions[-1], occurrence.changes)
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
        uid=_uid(vm, life.key, str(fact.number)),
        trace_id=trace_id(life.ids[0]),
        span_id=root_id(vm, life.key),
        sampled=sampled(life.ids[0]),
    )


def _line(occurrence: Occurrence, vm: str) -> str:
    life, event = occurrence.life, occurrence.life.event
    parts = [f"{event.event_type} {occurrence.transition.value.replace('_', ' ')}: {life.instance or vm}"]
    if event.not_before and not life.ended:
        parts.append(f"not before {rfc3339(event.not_before)}")
    parts += [text for text in (occurrence.detail, f"event {life.ids[0]}", event.description) if text]
    return _one_line(", ".join(parts))


def _watch_record(fact: OutageFact) -> LogRecord:
    since = rfc3339(fact.outage.since)
    if fact.change is WatchChange.BLIND:
        body = f"no valid document from IMDS since {since}" + (f": {fact.error}" if fact.error else "")
        attributes = {"since": since, "error": fact.error}
    else:
        seconds = (fact.at - fact.outage.since).total_seconds()
        body = f"IMDS returns valid documents again, after {duration(seconds)}"
        attributes = {"since": since, "reason": WatchChange.BLIND.value}
    level = severity(fact.change).value
    return _other(fact.change.value, fact.at, level, body, attributes, (fact.host, fact.outage.key))


def _problem_record(fact: ProblemFact) -> LogRecord:
    problem = fact.problem
    attributes = {"reason": problem.reason.value, "problem": problem.message}
    since = rfc3339(problem.since, milliseconds=True)
    facts = (fact.host, problem.reason, problem.subject, since)
    if fact.begins:
        body = f"degraded: {problem.message}"
        return _other("degraded", problem.since, WARNING.value, body, attributes, facts)
    return _other("recovered", fact.at, SUCCESS.value, f"over: {problem.message}", attributes, facts)


def _pause_record(fact: PauseFact) -> LogRecord:
    body = f"this VM stood still for {fact.seconds:.1f} s while no event was Started for it"
    attributes = {"pause_seconds": str(round(fact.seconds, 3))}
    facts = (fact.host, fact.at.isoformat())
    return _other("unannounced_pause", fact.at, WARNING.value, body, attributes, facts)


def _other(  # noqa: PLR0917  # it is called in this module alone
    name: str, at: datetime, level: str, body: str, attributes: Mapping[str, str], facts: Sequence[str]
) -> LogRecord:
    given: dict[str, Attribute] = {PREFIX + key: value for key, value in attributes.items() if value}
    return LogRecord(PREFIX + name, at, level, _one_line(body), given, _uid(name, *facts))


def _one_line(text: str) -> str:
    return printable(text)[:_LONGEST_BODY]


def _uid(*facts: str) -> str:
    # A name from the command line may not be valid Unicode.
    text = "\0".join(facts).encode(errors="backslashreplace").decode()
    return str(uuid.uuid5(_NAMESPACE, text))
