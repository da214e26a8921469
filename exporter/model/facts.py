"""What has happened, for the receivers of spans and log records.

A fact is stored in the transaction of what it describes. Spans and records are composed from facts alone, so
that they are the same whenever they are composed, also after a restart.
"""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from exporter.health import Problem
from exporter.model.events import Affected
from exporter.model.lifecycle import ENDINGS, Occurrence, Transition
from exporter.model.messages import Outage, WatchChange
from exporter.timefmt import UtcTime


class TransitionFact(msgspec.Struct, frozen=True, omit_defaults=True, tag="transition"):
    """A transition of an event. Only the fact of an end has all earlier transitions of the life."""

    occurrence: Occurrence
    number: int  # of the transition in its life, from 1

    @property
    def at(self) -> datetime:
        return self.occurrence.at

    @property
    def event_id(self) -> str:
        return self.occurrence.life.ids[0]


class WorkFact(msgspec.Struct, frozen=True, omit_defaults=True, tag="work"):
    """A job that is done."""

    output: str  # the name of its output
    name: str  # of the target, the hook or the rule
    event_id: str
    event_type: str
    affects: Affected
    life_key: str
    vm: str  # `Life.identity`
    number: int  # the transition that caused it, and its number in the life; 0 for an approval
    transition: Transition | None
    begun: UtcTime
    at: UtcTime
    outcome: str = ""
    problem: str = ""  # "" for a success


class OutageFact(msgspec.Struct, frozen=True, omit_defaults=True, tag="outage"):
    """An outage of the watch begins or ends."""

    change: WatchChange
    outage: Outage
    at: UtcTime
    host: str
    error: str = ""


class ProblemFact(msgspec.Struct, frozen=True, omit_defaults=True, tag="problem"):
    """A problem of the exporter begins or is over."""

    problem: Problem
    at: UtcTime
    host: str
    begins: bool


class PauseFact(msgspec.Struct, frozen=True, omit_defaults=True, tag="pause"):
    """This VM stood still while no event was Started for it."""

    seconds: float
    at: UtcTime
    host: str


Fact = TransitionFact | WorkFact | OutageFact | ProblemFact | PauseFact


def transition_fact(occurrence: Occurrence) -> TransitionFact:
    """Return the fact of a transition that just happened.

    Until the end, only the beginnings of the phases are needed besides the newest transition: a life can have
    a thousand.
    """
    life = occurrence.life
    if occurrence.transition not in ENDINGS:
        begins = [
            next((record for record in life.transitions if record.transition is phase), None)
            for phase in (Transition.SCHEDULED, Transition.STARTED)
        ]
        last = life.transitions[-1]
        kept = tuple(record for record in begins if record is not None and record is not last)
        life = replace(life, transitions=(*kept, last))
    brief = tuple(change.brief for change in occurrence.changes)
    return TransitionFact(replace(occurrence, life=life, changes=brief), len(occurrence.life.transitions))
