"""The model and the product side by side: where they disagree on a history."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from exporter.clock import Moment
from exporter.errors import ImdsError
from exporter.model.advance import advance, pass_time
from exporter.model.documents import decode_document
from exporter.model.events import ScheduledEvent
from exporter.model.lifecycle import Life as ProgramLife
from exporter.model.lifecycle import Occurrence, WatchState
from exporter.model.lifecycle import Step as ProgramStep
from tests.model import life
from tests.model.histories import Step, history
from tests.model.reading import Event, plain_name

SECONDS = tuple(threshold.total_seconds() for threshold in life.THRESHOLDS)


class Line(NamedTuple):
    """A report on a life after a document; without ``transition`` and what follows, only its state."""

    ids: tuple[str, ...]
    number: int
    target: str
    event: Event
    first_seen: datetime
    started: datetime | None
    ended: datetime | None
    outcome: str | None
    changed_to: str | None
    happened: tuple[tuple[str, datetime], ...]
    transition: str = ""
    at: datetime | None = None
    changes: life.Changes = ()
    impact: timedelta | None = None


Lines = list[Line]


class Difference(NamedTuple):
    """The number of the first answer after which the two disagree, and the differences.

    The number after the last stands for what is past in the end.
    """

    number: int
    expected: Lines
    got: Lines
    remark: str = ""


def disagreements(seed: int | str, histories: int, most: int) -> list[str]:
    """Return reports on the first histories on which model and product disagree, ``most`` at most."""
    found: list[str] = []
    for number in range(histories):
        steps = history(f"{seed}-{number}")
        if where := difference(steps):
            found.append(f"history {seed}-{number}\n{report(steps, where)}")
        if len(found) == most:
            break
    return found


def difference(steps: Sequence[Step]) -> Difference | None:
    for number, (expected, got) in enumerate(zip(_by_model(steps), _by_product(steps), strict=True)):
        if len(expected) != len(got) or set(expected) != set(got):
            return Difference(
                number,
                [line for line in expected if line not in got],
                [line for line in got if line not in expected],
            )
        if (ranks := [_rank(line) for line in got]) != sorted(ranks):
            return Difference(number, expected, got, "told in another order")
    return None


def _rank(line: Line) -> int:
    """Return the place of a transition in the order, and a last one for what is only known."""
    return next((i for i, words in enumerate(life.ORDER) if line.transition in words), len(life.ORDER))


def _by_model(steps: Iterable[Step]) -> Iterator[Lines]:
    """Yield the reports and the current lives after each answer, and at the end the past ones."""
    state = life.State()
    for step, after in zip(steps, life.follow(steps), strict=True):
        state, told = after
        current = [expected_line(each) for each in state.lives if not each.over]
        yield [_expected_word(each, step.at) for each in told] + current
    yield [expected_line(each) for each in state.lives if each.over and not each.silent]


def _expected_word(each: life.Told, at: datetime) -> Line:
    line = expected_line(each.life)
    return line._replace(transition=each.transition, at=at, changes=_plain(each.changes), impact=each.impact)


def expected_line(each: life.Life) -> Line:
    happened = tuple((moment.transition or "", moment.at) for moment in each.transitions)
    end = each.transitions[-1] if each.over else None
    return Line(
        each.ids,
        each.number,
        each.target,
        each.event,
        each.story[0].at,
        each.started,
        end.at if end else None,
        end.transition if end else None,
        each.changed_to,
        happened,
    )


def _by_product(steps: Iterable[Step]) -> Iterator[Lines]:
    known, watching = WatchState(), False
    for step in steps:
        if step.restart:
            known = msgspec.json.decode(msgspec.json.encode(known), type=WatchState)
            watching = False
        try:
            document = decode_document(step.body)
        except ImdsError:
            after = pass_time(known, step.at, SECONDS, late=True) or ProgramStep(known)
            known = after.state
        else:
            after = advance(
                known,
                document,
                step.at,
                instance=step.instance,
                watching=watching,
                thresholds=SECONDS,
                moment=Moment(str(step.boot), 0.0),
            )
            watching = True
            known = msgspec.structs.replace(after.state, last_success=step.at)
        yield [_got_word(each) for each in after.occurrences] + [
            line_of(each) for each in known.current.values()
        ]
    yield [line_of(each) for each in known.past.values()]


def _got_word(each: Occurrence) -> Line:
    changes = tuple((change.field, change.old, change.new) for change in each.changes)
    line = line_of(each.life)
    return line._replace(
        transition=each.transition.value, at=each.at, changes=_plain(changes), impact=each.impact
    )


def _plain(changes: life.Changes) -> life.Changes:
    """Return changes with names that count; which of two spellings was reported before does not matter."""
    return tuple(
        (field, _names(old), _names(new)) if field == "resources" else (field, old, new)
        for field, old, new in changes
    )


def _names(resources: object) -> tuple[str, ...]:
    assert isinstance(resources, tuple)
    return tuple(sorted(map(plain_name, resources)))


def line_of(each: ProgramLife) -> Line:
    return Line(
        tuple(event_id.lower() for event_id in each.ids),
        each.number,
        each.target.value,
        _event(each.event),
        each.first_seen,
        each.started,
        each.ended,
        each.outcome.value if each.outcome else None,
        each.changed_to,
        tuple((moment.transition.value, moment.at) for moment in each.transitions),
    )


def _event(event: ScheduledEvent) -> Event:
    return Event(
        event.event_id.lower(),
        event.event_type,
        event.event_status.lower(),
        event.event_source,
        event.resources,
        event.not_before,
        event.duration_seconds,
        event.description,
    )


def report(steps: Sequence[Step], found: Difference) -> str:
    """Return a history and where the two disagree, for a person."""
    lines = []
    for step in steps[: found.number + 1]:
        begun = "restarted" if step.restart else ""
        lines += [f"{step.at:%d %H:%M:%S}  name {step.instance}  {begun}", f"  {step.body!r}"]
    lines += [f"  expected: {line}" for line in found.expected]
    lines += [f"  got:      {line}" for line in found.got]
    return "\n".join([*lines, f"  {found.remark}"] if found.remark else lines)
