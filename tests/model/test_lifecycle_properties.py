"""Tests of `exporter.model.advance` over random histories: what is to be written, and what a restart changes.

What is told and known is compared with the model in `tests.model.test_life`.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec
import pytest

from exporter.errors import ImdsError
from exporter.model.advance import advance
from exporter.model.documents import Document, decode_document
from exporter.model.lifecycle import Known, Step, TrackedEvent
from tests.model.histories import history


class Walked(NamedTuple):
    """A step with what it was made of."""

    before: Known
    document: Document
    now: datetime
    instance: str | None
    watching: bool
    step: Step

    def again(self, before: Known) -> Step:
        """Take the document in again, with this known before it."""
        return advance(before, self.document, self.now, instance=self.instance, watching=self.watching)


def walk(part: int) -> Iterator[Walked]:
    """Yield the steps of some histories, each from nothing known."""
    for seed in range(50):
        known, watching = Known(), False
        for answer in history(f"{part} {seed}"):
            try:
                document = decode_document(answer.body)
            except ImdsError:
                continue
            if answer.restart:
                known, watching = reread(known), False
            written = msgspec.json.encode(known)
            step = advance(known, document, answer.at, instance=answer.instance, watching=watching)
            assert msgspec.json.encode(known) == written, "changed in place"
            yield Walked(known, document, answer.at, answer.instance, watching, step)
            known, watching = step.known, True


def reread(known: Known) -> Known:
    """Write what is known, and read it again."""
    return msgspec.json.decode(msgspec.json.encode(known), type=Known)


def all_of(known: Known) -> dict[str, TrackedEvent]:
    """Return all events that are known, by key."""
    assert not known.current.keys() & known.past.keys()
    return known.current | known.past


@pytest.mark.parametrize("part", range(4))
def test_what_is_to_be_written_is_exactly_what_differs(part: int) -> None:
    """Whoever applies `changed` and `forgotten` to what was known has what is known."""
    for walked in walk(part):
        step, before, after = walked.step, all_of(walked.before), all_of(walked.step.known)
        changed = {tracked.key: tracked for tracked in step.changed}
        assert len(changed) == len(step.changed)
        assert changed == {key: tracked for key, tracked in after.items() if before.get(key) != tracked}
        assert set(step.forgotten) == before.keys() - after.keys()
        assert step.known.incarnation == walked.document.incarnation
        assert step.new_incarnation == (walked.before.incarnation != step.known.incarnation)
        assert {one.tracked.key for one in step.occurrences} <= changed.keys()
        assert all(one.tracked == after[one.tracked.key] for one in step.occurrences)


@pytest.mark.parametrize("part", range(4))
def test_the_same_document_again_does_nothing(part: int) -> None:
    """A document that is read twice causes nothing the second time, and nothing to write."""
    for walked in walk(part):
        for watching in (True, False):
            again = walked._replace(watching=watching).again(walked.step.known)
            assert (again.occurrences, again.writes, again.known) == ((), False, walked.step.known)


@pytest.mark.parametrize("part", range(4))
def test_a_restart_makes_no_difference(part: int) -> None:
    """What was written and read again leads to the same step, in the same order."""
    for walked in walk(part):
        again = walked.again(reread(walked.before))
        assert again == walked.step
        assert list(again.known.current) == list(walked.step.known.current)
        assert list(again.known.past) == list(walked.step.known.past)
