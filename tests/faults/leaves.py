"""The check of approvals: none without leave by a rule, none too early, none too many, none twice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tests.faults.azure import Talk
from tests.faults.history import INFINITE
from tests.faults.model import World
from tests.faults.rules import MAX_PER_HOUR, leave
from tests.faults.scene import Scene
from tests.faults.truth import Document, Event

HOUR = 3600.0
# A life that ends as it is approved may have ended a little before.
HASTE = 3.0
Shown = Mapping[str, Sequence[dict[str, Any]]]


class Leaves:
    """The approvals that Azure was asked for; ``since`` makes datetimes of the monotonic clock's seconds."""

    def __init__(self, scene: Scene, since: datetime, began: float) -> None:
        self._scene = scene
        self._since = since
        self._began = began

    def check(self, world: World, shown: Shown) -> Counter[tuple[str, str]]:
        """Check all; return what must be told of as approved, and how often, by first ids in small letters.

        ``shown`` are the lives that the API shows of each event.
        """
        keys = {i: key for key, lives in world.state.lives.items() for i in lives[-1].ids}
        given = self._given()
        asked: dict[str, list[list[Talk]]] = {}
        decided: dict[tuple[str, int], tuple[float, float]] = {}
        for talk, fetch in self._posts():
            for event_id in talk.approves:
                key = keys.get(event_id, event_id)
                document = fetch.document or Document(0)
                event = next((e for e in document.events if e.id.lower() == event_id), None)
                assert event is not None, f"{key} was approved, and not in the document"
                known = given.get(_fold(event), INFINITE) <= talk.asked
                assert known, f"{key} was approved as the watch did not know it: {event}"
                self._allowed(talk, fetch, key, event, shown.get(key, ()))
                self._note(asked.setdefault(key, []), talk)
                lives = [life for life in shown.get(key, ()) if life["target"] == "self"]
                assert len(asked[key]) <= max(len(lives), 1), f"{key} was approved twice in a life"
                self._within_limit(decided, (key, len(asked[key])), self._exporter_times(talk))
        return self._told(asked, shown)

    def _given(self) -> dict[Event, float]:
        """Return when each event was first given to the watch as it is."""
        found: dict[Event, float] = {}
        documents = set()
        for talk in self._scene.azure.talks:
            if talk.who == "poller" and talk.document is not None and id(talk.document) not in documents:
                documents.add(id(talk.document))
                for event in talk.document.events:
                    found[_fold(event)] = min(talk.answered, found.get(_fold(event), INFINITE))
        return found

    def _note(self, asked: list[list[Talk]], talk: Talk) -> None:
        """Add a request to those for the same life; after one that certainly succeeded it is for another."""
        taken = [one for one in (asked[-1] if asked else ()) if one.answered]
        if asked and (not taken or self._may_repeat(taken[-1], talk)):
            asked[-1].append(talk)
        else:
            asked.append([talk])

    def _within_limit(
        self,
        decided: dict[tuple[str, int], tuple[float, float]],
        what: tuple[str, int],
        times: tuple[float, float],
    ) -> None:
        if what in decided:
            return
        within = [k for k, (_, latest) in decided.items() if latest > times[1] - HOUR]
        sure = [k for k in within if decided[k][0] > times[1] - HOUR]
        assert len(sure) < MAX_PER_HOUR, f"{what[0]}: {len(sure)} were approved in the hour before"
        decided[what] = times

    def _told(self, asked: dict[str, list[list[Talk]]], shown: Shown) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for key, lives in shown.items():
            for life in lives:
                count = [entry["transition"] for entry in life["transitions"]].count("approved")
                assert count <= 1, f"{key}: approved {count} times in a life"
                found[key, "approved"] += count
            talks = asked.get(key, [])
            count = found[key, "approved"]
            assert count <= sum(map(len, talks)), f"{key} is said to be approved, and was not"
            certain = sum(any(one.answered and self._is_certain(one) for one in group) for group in talks)
            assert count >= certain, f"{key} was approved, and is not said to be"
        return +found

    def _posts(self) -> Iterator[tuple[Talk, Talk]]:
        """Yield each request that approves, with the one that gave the approver a document just before."""
        newest: dict[int, Talk] = {}
        for talk in sorted(self._scene.azure.talks, key=lambda talk: talk.asked):
            if talk.who != "approver":
                assert not talk.approving, f"{talk.who} approves"
            elif not talk.approving:
                if talk.document is not None:
                    newest[talk.life] = talk
            elif talk.approves:
                yield talk, newest[talk.life]

    def _allowed(
        self, talk: Talk, fetch: Talk, key: str, event: Event, shown: Sequence[dict[str, Any]]
    ) -> None:
        leaves = [
            given
            for name, spell in self._scene.rules
            if spell.touches(talk.asked - 0.5, talk.asked) and (given := leave(name, event)) is not None
        ]
        assert leaves, f"{key} was approved, and no rule allows it: {event}"
        if self._scene.in_doubt(talk.asked, INFINITE):
            return
        lives = [life for life in shown if self._lasted(life, fetch.asked - HASTE, talk.asked)]
        for given in leaves:
            times = {entry["at"] for life in lives for entry in life["transitions"]}
            drained = [
                run
                for run in self._scene.hooks.runs
                if (run.hook, run.id) == (given.hook, key) and run.at in times
                if run.status == 0 and run.begun < talk.asked
            ]
            assert drained or not given.hook, f"{key} was approved before it was drained"
        ages = [age for life in lives for age in self._ages(life, talk)]
        due = min(given.wait for given in leaves)
        assert not shown or max(ages, default=0.0) >= due - 0.1, (
            f"{key} was approved at {ages} s, due {due} s"
        )

    def _lasted(self, life: dict[str, Any], since: float, until: float) -> bool:
        """Return whether a life of this VM's may have lasted in a stretch of time."""
        begun = [at for at, _ in self._moments(life["first_seen"])]
        ended = [at for at, _ in self._moments(life["ended"])] if life["ended"] else [INFINITE]
        mine: bool = life["target"] == "self"
        return mine and any(at <= until for at in begun) and any(at >= since for at in ended)

    def _ages(self, life: dict[str, Any], talk: Talk) -> Iterator[float]:
        """Yield how old the exporter may have taken a life for when it approved."""
        process = self._scene.processes[talk.life - 1]
        for begun, offset in self._moments(life["first_seen"]):
            inherited = begun < process.begun
            later = max(self._scene.offsets_between(process.begun, talk.asked)) if inherited else offset
            yield talk.asked - begun + max(later - offset, 0.0)

    def _moments(self, written: str) -> list[tuple[float, float]]:
        """Return when the exporter's clock may have shown a time, and by how much it was wrong then."""
        right = self._began + (datetime.fromisoformat(written) - self._since).total_seconds()
        offsets = {offset.seconds for offset in self._scene.offsets}
        return [(right - o, o) for o in offsets if o in self._scene.offsets_between(right - o, right - o)]

    def _exporter_times(self, talk: Talk) -> tuple[float, float]:
        """Return the earliest and the latest that the exporter's clock may have shown when it decided."""
        offsets = self._scene.offsets_between(talk.asked - 3, talk.asked)
        return talk.asked - 3 + min(offsets), talk.asked + max(offsets)

    def _may_repeat(self, first: Talk, second: Talk) -> bool:
        if first.life == second.life:
            return not self._is_certain(first)
        end = self._scene.processes[first.life - 1].ended
        assert end is not None
        return not self._is_certain(first) or self._scene.in_doubt(first.answered, end[0])

    def _is_certain(self, talk: Talk) -> bool:
        """Return whether the exporter must know that Azure took it."""
        process = self._scene.processes[talk.life - 1]
        end = process.ended[0] if process.ended else INFINITE
        stood = any(stop.touches(talk.asked, talk.answered + 1) for stop in process.stops)
        hung_up = talk.closed is not None and talk.closed < talk.answered + 1
        in_doubt = self._scene.in_doubt(talk.answered, end) and end != INFINITE
        return end > talk.answered + 1 and not stood and not hung_up and not in_doubt


def _fold(event: Event) -> Event:
    return msgspec.structs.replace(event, status=event.state)
