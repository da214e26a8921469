"""The order of the transitions of one document."""

from exporter.model.lifecycle import ENDINGS, Occurrence, Transition
from exporter.model.messages import severity

# Endings first, so that the last message about a document is about a pending event.
_ORDER = (
    ENDINGS,
    (Transition.STARTED,),
    (Transition.UPDATED,),
    (Transition.IMMINENT,),
    (Transition.SCHEDULED,),
    (Transition.ADVISED,),
)
_RANKS = {transition: place for place, kind in enumerate(_ORDER) for transition in kind}


def rank(occurrence: Occurrence) -> tuple[int, int]:
    """Return the place of a transition in the order of a document: by kind, the gravest first."""
    life = occurrence.life
    begun = life.has(Transition.STARTED)
    gravity = severity(occurrence.transition, life.event.event_type, begun=begun).weight
    return _RANKS[occurrence.transition], -gravity
