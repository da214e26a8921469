"""What the soak checks at a quiet moment; each check raises AssertionError with what is wrong."""

import itertools
import json
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from tests.end_to_end.test_notifications import told
from tests.faults.model import Told, World
from tests.faults.process import Process
from tests.faults.rules import hooks_for
from tests.faults.scene import Scene
from tests.notifications.receivers import Received, Receiver
from tests.tracing.receiver import decode

What = tuple[str, str]  # event id in small letters, transition
_TRACEBACK = re.compile(r"traceback|Traceback \(most recent|poller died")


def batches(receiver: Receiver) -> list[tuple[Received, list[What]]]:
    """Give what each message told of."""
    return [(request, _told(request.body)) for request in tuple(receiver.requests)]


@cache
def _told(body: bytes) -> list[What]:
    return [(event_id.lower(), transition) for event_id, transition in told(json.loads(body))]


def messages(scene: Scene, receiver: Receiver, world: World, approved: set[str]) -> None:
    """Everything is told, nothing else, in order; twice only around a kill, a pause or a lost answer."""
    must = Counter((entry.id, entry.transition) for entry in world.state.told if entry.mine)
    must += Counter((key, "approved") for key in approved)
    may = Counter((entry.id, entry.transition) for entry in world.lost if entry.mine)
    may += _forgotten(scene, receiver)
    found: Counter[What] = Counter()
    before: dict[What, Received] = {}
    repeats = 0
    for request, batch in batches(receiver):
        found.update(batch)
        again = [what for what in batch if found[what] > must[what] + may[what] and what in before]
        repeats += bool(again)
        unexcused = [what for what in again if not _was_cut_off(scene, before[what])]
        assert not unexcused, f"told again, although it had arrived: {unexcused}"
        before |= dict.fromkeys(batch, request)
        strange = [what for what in batch if not must[what] + may[what] and what[1] != "approved"]
        assert not strange, f"told of what did not happen: {strange}"
    missing = must - found
    assert not missing, f"never told: {dict(missing)}"
    allowed = _repeats_allowed(scene, receiver)
    assert repeats <= allowed, f"{repeats} repeats, {allowed} allowed"
    _in_order(receiver, world, {what for what in found if found[what] != must[what]})


def _repeats_allowed(scene: Scene, receiver: Receiver) -> int:
    kills = sum(process.ended is not None and process.ended[1] == "kill" for process in scene.processes)
    stops = sum(len(process.stops) for process in scene.processes)
    return kills + stops + sum(not request.answered for request in tuple(receiver.requests))


def _was_cut_off(scene: Scene, request: Received) -> bool:
    """Tell whether the exporter may not have learnt that a message arrived, or not have written it down."""
    return (
        not request.answered
        or any(p.ended and p.told_to_end - 1 <= request.at <= p.ended[0] for p in scene.processes)
        or any(s.touches(request.at - 0.5, request.at + 0.5) for p in scene.processes for s in p.stops)
    )


def _forgotten(scene: Scene, receiver: Receiver) -> Counter[What]:
    """Count what was told while the disk was in doubt, in a life that ended so: that may be told again."""
    found: Counter[What] = Counter()
    for process in scene.processes:
        if process.ended is None:
            continue
        for spell in scene.disk:
            if spell.touches(process.ended[0], process.ended[0]):
                since = max(spell.since, process.begun)
                for request, batch in batches(receiver):
                    if since <= request.at <= process.ended[0]:
                        found.update(batch)
    return found


def _in_order(receiver: Receiver, world: World, excused: set[What]) -> None:
    steps: dict[What, list[int]] = {}
    for entry in sorted((e for e in world.state.told if e.mine), key=lambda entry: entry.step):
        steps.setdefault((entry.id, entry.transition), []).append(entry.step)
    newest, seen = -1, Counter[What]()
    for _, batch in batches(receiver):
        for what in batch:
            number = seen[what]
            seen[what] += 1
            if what in excused or number >= len(steps.get(what, ())):
                continue
            step = steps[what][number]
            assert step >= newest, f"{what} was told after what happened later"
            newest = step


def hooks(scene: Scene, world: World, events: dict[str, Any]) -> None:
    """Each hook ran once for each event and transition; again only where a restart cut it off."""
    must = set(_jobs(world.state.told, events))
    may = must | set(_jobs(world.lost, events))
    runs = scene.hooks.runs
    assert all(run.agrees for run in runs), "standard input and variables differ"
    strange = {run.what for run in runs} - may
    assert not strange, f"hooks ran for nothing: {strange}"
    missing = must - {run.what for run in runs if run.ended is not None}
    assert not missing, f"hooks did not run: {missing}"
    for what in must:
        mine = sorted((run for run in runs if run.what == what), key=lambda run: run.begun)
        for earlier, later in itertools.pairwise(mine):
            end = scene.processes[earlier.life - 1].ended
            assert end is not None, f"{what} ran twice in one life"
            if scene.in_doubt(end[0], end[0]):
                continue
            told_to_end = scene.processes[earlier.life - 1].told_to_end
            cut = earlier.ended is None or told_to_end <= earlier.ended + 0.5 or _stood(scene, earlier.life)
            assert cut, f"{what} ran again although it had ended"
            assert later.attempt == earlier.attempt + 1, f"{what}: attempts {[r.attempt for r in mine]}"


def _stood(scene: Scene, life: int) -> bool:
    process = scene.processes[life - 1]
    assert process.ended is not None
    return any(stop.touches(process.ended[0] - 1, process.ended[0]) for stop in process.stops)


def _jobs(happened: Iterable[Told], events: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for entry in happened:
        if entry.mine:
            for hook in hooks_for(events[entry.id], entry.transition):
                yield hook, entry.id, entry.transition


def spans(scene: Scene) -> None:
    """Each span arrives once; again only where the answer was lost, or a restart had it done again."""
    names: dict[tuple[str, str], str] = {}
    taken: dict[tuple[str, str], float] = {}
    for request in tuple(scene.traces.requests):
        for span in decode(request):
            ids = (span.trace_id, span.span_id)
            assert names.setdefault(ids, span.name) == span.name, f"two spans have the id {ids}"
            if ids in taken:
                excused = _may_come_again(scene, span.name, taken[ids], request.at)
                assert excused, f"the span {span.name} {ids} came twice"
            if request.answered:
                taken[ids] = request.at
            else:
                taken.pop(ids, None)


def _may_come_again(scene: Scene, name: str, first: float, second: float) -> bool:
    # The exporter's patience with the receiver is a second, and passes while it stands still.
    if any(stop.touches(first - 1.5, first + 1.5) for process in scene.processes for stop in process.stops):
        return True
    ends = [p.ended[0] for p in scene.processes if p.ended and first - 2 <= p.ended[0] <= second]
    if name.startswith(("notify", "hook", "approve")):
        return bool(ends)
    return any(scene.in_doubt(end, end) for end in ends)


def logs(processes: Sequence[Process]) -> None:
    """No log has a traceback, and no life ended otherwise than it was made to."""
    for process in processes:
        bad = [line for line in process.lines if _TRACEBACK.search(line)]
        assert not bad, f"life {process.number}: {bad[0]}"
        if process.ended is not None and process.ended[1] == "stop":
            how = "no end in time" if process.status is None else f"status {process.status}"
            # Before anything is logged, Python itself has not started, and the signal ends it.
            early = process.status == -signal.SIGTERM and not process.lines
            assert process.status == 0 or early, f"life {process.number}: {how}"
