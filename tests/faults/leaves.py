"""The check of approvals: none without leave by a rule, none too early, none too many, none twice."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.faults.azure import Talk
from tests.faults.model import World
from tests.faults.rules import MAX_PER_HOUR, leave
from tests.faults.scene import Scene
from tests.faults.truth import Document, Event

HOUR = 3600.0


class Leaves:
    """The approvals that Azure was asked for; ``since`` makes datetimes of the monotonic clock's seconds."""

    def __init__(self, scene: Scene, since: datetime, began: float) -> None:
        self._scene = scene
        self._since = since
        self._began = began

    def check(self, world: World, shown: dict[str, dict[str, Any]]) -> set[str]:
        """Check all; give the first ids, in small letters, of the events that must be told of as approved.

        ``shown`` is what the API shows of each event, by first id.
        """
        keys = {i: key for key, life in world.state.lives.items() for i in life.ids}
        posts = list(self._posts())
        decided: dict[str, tuple[float, float]] = {}
        taken: dict[str, Talk] = {}
        for talk, document in posts:
            for event_id in talk.approves:
                key = keys.get(event_id, event_id)
                event = next((e for e in document.events if e.id.lower() == event_id), None)
                assert event is not None, f"{key} was approved, and not in the document"
                self._allowed(talk, key, event, shown.get(key))
                self._within_limit(decided, key, self._exporter_times(talk))
                assert key not in taken or self._may_repeat(taken[key], talk), f"{key} was approved twice"
                if talk.answered:
                    taken[key] = talk
        return self._told(taken, {keys.get(i, i) for talk, _ in posts for i in talk.approves}, shown)

    def _within_limit(
        self, decided: dict[str, tuple[float, float]], key: str, times: tuple[float, float]
    ) -> None:
        if key in decided:
            return
        within = [k for k, (_, latest) in decided.items() if latest > times[1] - HOUR]
        sure = [k for k in within if decided[k][0] > times[1] - HOUR]
        assert len(sure) < MAX_PER_HOUR, f"{key}: {len(sure)} were approved in the hour before"
        decided[key] = times

    def _told(self, taken: dict[str, Talk], asked: set[str], shown: dict[str, dict[str, Any]]) -> set[str]:
        found = set()
        for key, event in shown.items():
            count = [entry["transition"] for entry in event["transitions"]].count("approved")
            assert count <= 1, f"{key}: approved {count} times"
            assert not count or key in asked, f"{key} is said to be approved, and was not"
            if count and event["target"] == "self":
                found.add(key)
            certain = key in taken and self._is_certain(taken[key])
            assert count or not certain, f"{key} was approved, and is not said to be"
        return found

    def _posts(self) -> Iterator[tuple[Talk, Document]]:
        """Give each request that approves, with the document that the approver was given just before."""
        newest: dict[int, Document] = {}
        for talk in sorted(self._scene.azure.talks, key=lambda talk: talk.asked):
            if talk.who != "approver":
                assert not talk.approving, f"{talk.who} approves"
            elif not talk.approving:
                if talk.document is not None:
                    newest[talk.life] = talk.document
            elif talk.approves:
                yield talk, newest[talk.life]

    def _allowed(self, talk: Talk, key: str, event: Event, shown: dict[str, Any] | None) -> None:
        leaves = [
            given
            for name, spell in self._scene.rules
            if spell.touches(talk.asked - 0.5, talk.asked) and (given := leave(name, event)) is not None
        ]
        assert leaves, f"{key} was approved, and no rule allows it: {event}"
        for given in leaves:
            drained = [
                run
                for run in self._scene.hooks.runs
                if run.hook == given.hook and run.id == key and run.status == 0 and run.begun < talk.asked
            ]
            assert drained or not given.hook, f"{key} was approved before it was drained"
        if shown is None or self._scene.in_doubt(talk.asked, float("inf")):
            return
        first_seen = datetime.fromisoformat(shown["first_seen"])
        due = first_seen + timedelta(seconds=min(given.wait for given in leaves))
        latest = self._wall(self._exporter_times(talk)[1])
        assert latest >= due - timedelta(seconds=0.1), f"{key} was approved at {latest}, due {due}"

    def _exporter_times(self, talk: Talk) -> tuple[float, float]:
        """Give the earliest and the latest that the exporter's clock may have shown when it decided."""
        offsets = self._scene.offsets_between(talk.asked - 3, talk.asked)
        return talk.asked - 3 + min(offsets), talk.asked + max(offsets)

    def _wall(self, seconds: float) -> datetime:
        return self._since.astimezone(UTC) + timedelta(seconds=seconds - self._began)

    def _may_repeat(self, first: Talk, second: Talk) -> bool:
        if first.life == second.life:
            return not self._is_certain(first)
        end = self._scene.processes[first.life - 1].ended
        assert end is not None
        return not self._is_certain(first) or self._scene.in_doubt(first.answered, end[0])

    def _is_certain(self, talk: Talk) -> bool:
        """Tell whether the exporter must know that Azure took it."""
        process = self._scene.processes[talk.life - 1]
        end = process.ended[0] if process.ended else float("inf")
        stood = any(stop.touches(talk.asked, talk.answered + 1) for stop in process.stops)
        hung_up = talk.closed is not None and talk.closed < talk.answered + 1
        in_doubt = self._scene.in_doubt(talk.answered, end) and end != float("inf")
        return end > talk.answered + 1 and not stood and not hung_up and not in_doubt
