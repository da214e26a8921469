"""From the journal to the possible worlds: which documents were certainly taken in, and which perhaps."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from tests.faults.azure import Talk
from tests.faults.model import View, World, merged
from tests.faults.scene import Scene

MOST_WORLDS = 4000
INFINITE = float("inf")


class Mark(msgspec.Struct, frozen=True):
    """Something that matters to the worlds, at a moment of the monotonic clock."""

    at: float
    what: Literal["sure", "maybe", "disk fails", "disk is well", "restart"]
    talk: Talk | None = None


class History:
    """The possible worlds as far as the journal has been read."""

    def __init__(self, scene: Scene) -> None:
        self.worlds = [World()]
        self.most = 1
        self._scene = scene
        self._read_until = 0.0

    def read(self) -> bool:
        """Read the journal up to the newest answer that was surely taken in; return whether that is news."""
        marks = sorted(self._marks(), key=lambda mark: mark.at)
        talks = [mark.talk for mark in marks if mark.what == "sure" and mark.talk is not None]
        if not talks or talks[-1].document is not self._scene.azure.truth.newest:
            return False
        until = talks[-1].answered
        for mark in marks:
            if self._read_until < mark.at <= until:
                self._take(mark)
        self._read_until = until
        return True

    def agree(self, view: View) -> None:
        """Leave the worlds in which what the exporter tells of itself is so; there must be one at least."""
        agreeing = [world for world in self.worlds if world.state.view == view]
        if not agreeing:
            raise AssertionError("\n".join(self._differences(view)))
        self.worlds = agreeing

    def _differences(self, view: View) -> Iterator[str]:
        yield f"none of {len(self.worlds)} possible worlds; the last one and the exporter differ:"
        wanted = self.worlds[-1].state.view
        for key in sorted(wanted.keys() | view.keys()):
            if wanted.get(key) != view.get(key):
                yield f"  {key}: must be {wanted.get(key)}, is {view.get(key)}"

    def _take(self, mark: Mark) -> None:
        worlds = self.worlds
        talk = mark.talk
        if mark.what in ("sure", "maybe") and talk is not None and talk.document is not None:
            seen = [world.saw(talk.document) for world in worlds]
            worlds = seen if mark.what == "sure" else [*worlds, *seen]
        elif mark.what == "disk fails":
            worlds = [world.disk_fails() for world in worlds]
        elif mark.what == "disk is well":
            worlds = [world.disk_is_well() for world in worlds]
        elif mark.what == "restart":
            worlds = [after for world in worlds for after in world.restarts()]
            if self._scene.in_doubt(mark.at, mark.at):
                worlds = [world.disk_fails() for world in worlds]
        self.worlds = merged(worlds)
        self.most = max(self.most, len(self.worlds))
        assert len(self.worlds) <= MOST_WORLDS, "too many possible worlds to follow"

    def _marks(self) -> Iterator[Mark]:
        for spell in self._scene.disk:
            yield Mark(spell.since, "disk fails")
            if spell.until != INFINITE:
                yield Mark(spell.until, "disk is well")
        for process in self._scene.processes:
            end = process.ended[0] if process.ended else INFINITE
            if end != INFINITE:
                yield Mark(end, "restart")
            talks = [t for t in self._scene.azure.talks if t.life == process.number and t.who == "poller"]
            for number, talk in enumerate(talks):
                following = talks[number + 1] if number + 1 < len(talks) else None
                yield from self._mark(talk, following, end)

    def _mark(self, talk: Talk, following: Talk | None, end: float) -> Iterator[Mark]:
        if talk.document is None or talk.answered >= end:
            return
        if following is None:
            if end != INFINITE:
                yield Mark(talk.answered, "maybe", talk)
            return
        process = self._scene.processes[talk.life - 1]
        stood = any(stop.touches(talk.asked, following.asked) for stop in process.stops)
        hung_up = talk.closed is not None and talk.closed <= following.asked
        yield Mark(talk.answered, "maybe" if stood or hung_up else "sure", talk)
