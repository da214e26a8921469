"""The soak's checks at quiet moments; each raises AssertionError with the fault."""

import itertools
import json
import re
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from tests.end_to_end.test_notifications import told
from tests.faults.model import ENDINGS, UNCERTAIN, Told, World
from tests.faults.process import Process
from tests.faults.reports import Run
from tests.faults.rules import hooks_for
from tests.faults.scene import Scene
from tests.notifications.receivers import Received, Receiver
from tests.tracing.receiver import decode

What = tuple[str, str]  # event id in small letters, transition
Shown = Mapping[str, Sequence[dict[str, Any]]]  # lives as the API shows them, by first id in small letters
Job = tuple[str, str, str, str]  # hook, event id in small letters, transition, when
UPDATE_SECONDS = 60.0
# Of one document.
_ORDER = (*ENDINGS, "started", "scheduled", "advised")
_TRACEBACK = re.compile(r"traceback|Traceback \(most recent|poller failed")


def batches(receiver: Receiver) -> list[tuple[Received, list[What]]]:
    """Return the content of each message."""
    return [(request, _told(request.body)) for request in tuple(receiver.requests)]


@cache
def _told(body: bytes) -> list[What]:
    return [(event_id.lower(), transition) for event_id, transition in told(json.loads(body))]


def updates(world: World, shown: Shown) -> Counter[What]:
    """Nothing was updated that never changed, and no life more than once a minute; return what was."""
    found: Counter[What] = Counter()
    changed = {entry.id for entry in world.state.told if entry.transition == "updated"}
    for key, lives in shown.items():
        for life in lives:
            times = [
                datetime.fromisoformat(e["at"]) for e in life["transitions"] if e["transition"] == "updated"
            ]
            assert not times or key in changed, f"{key} was updated, and never changed"
            gaps = [abs((later - earlier).total_seconds()) for earlier, later in itertools.pairwise(times)]
            assert all(gap >= UPDATE_SECONDS for gap in gaps), f"{key} was updated {gaps} seconds apart"
            if times and life["target"] == "self":
                found[key, "updated"] += len(times)
    return found


def failures(scene: Scene, shown: Shown) -> Counter[What]:
    """Each run of a hook that failed is a transition of its life, once; return them."""
    found: Counter[What] = Counter()
    for key, lives in shown.items():
        for life in lives:
            entries = [entry for entry in life["transitions"] if entry["transition"] == "hook_failed"]
            told = {
                (entry["hook"], key, ran_for["transition"], ran_for["at"])
                for entry in entries
                for ran_for in [life["transitions"][entry["run"] - 1]]
            }
            assert len(told) == len(entries), f"{key}: a failed hook is told twice: {entries}"
            strange = told - {run.what for run in scene.hooks.runs if run.status != 0}
            assert not strange, f"told as failed, and did not: {strange}"
            found[key, "hook_failed"] += len(entries)
            times = {entry["at"] for entry in life["transitions"]}
            missing = {
                run.what
                for run in scene.hooks.runs
                if run.status and run.id == key and run.at in times and _ended_for_good(scene, run)
            } - told
            assert not missing, f"failed, and not told: {missing}"
    return +found


def _ended_for_good(scene: Scene, run: Run) -> bool:
    """Return whether the exporter must have recorded how a run ended."""
    process = scene.processes[run.life - 1]
    if run.ended is None or process.ended is None:
        return run.ended is not None
    kept = process.told_to_end > run.ended + 0.5 and not _stood(scene, run.life)
    return kept and not scene.in_doubt(run.ended, process.ended[0])


def messages(scene: Scene, receiver: Receiver, world: World, uncertain: Counter[What]) -> None:
    """Everything is told, nothing else, in order; twice only around a kill, a pause or a lost answer.

    ``uncertain`` is what else has happened, which does not follow from the documents.
    """
    must = Counter(_what(entry) for entry in _mine(world) if entry.transition not in UNCERTAIN) + uncertain
    may = Counter(_what(entry) for entry in world.lost if entry.mine) + _forgotten(scene, receiver)
    possible = must.keys() | may.keys() | {_what(entry) for entry in _mine(world)}
    found: Counter[What] = Counter()
    before: dict[What, list[Received]] = {}
    repeats = 0
    for request, batch in batches(receiver):
        found.update(batch)
        again = {what for what in batch if found[what] > must[what] + may[what] and what in before}
        repeats += bool(again)
        unexcused = [
            what
            for what in again
            if found[what] > must[what] + may[what] + sum(_was_cut_off(scene, one) for one in before[what])
        ]
        assert not unexcused, f"told again, although it had arrived: {unexcused}"
        for what in batch:
            before.setdefault(what, []).append(request)
        strange = [
            what for what in batch if what not in possible and what[1] not in ("approved", "hook_failed")
        ]
        assert not strange, f"told of what did not happen: {strange}"
    missing = must - found
    assert not missing, f"never told: {dict(missing)}"
    allowed = _repeats_allowed(scene, receiver)
    assert repeats <= allowed, f"{repeats} repeats, {allowed} allowed"
    _in_order(receiver, world, {what for what in found if found[what] != must[what]})


def _mine(world: World) -> list[Told]:
    """Return what happened to this VM."""
    return sorted((entry for entry in world.state.told if entry.mine), key=lambda entry: entry.step)


def _what(entry: Told) -> What:
    return entry.id, entry.transition


def _repeats_allowed(scene: Scene, receiver: Receiver) -> int:
    kills = sum(process.ended is not None and process.ended[1] == "kill" for process in scene.processes)
    stops = sum(len(process.stops) for process in scene.processes)
    return kills + stops + sum(not request.answered for request in tuple(receiver.requests))


def _was_cut_off(scene: Scene, request: Received) -> bool:
    """Return whether the exporter may not have learnt that a message arrived, or not have written it down."""
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
    places: dict[What, list[tuple[int, int, int]]] = {}
    for entry in _mine(world):
        if entry.transition not in UNCERTAIN:
            rank = max(_ORDER.index(entry.transition) - len(ENDINGS) + 1, 0)
            places.setdefault(_what(entry), []).append((entry.life, entry.step, rank))
    # Where a message of one life failed, it may come after one of the next life.
    newest: dict[tuple[str, int], tuple[int, int, int]] = {}
    seen = Counter[What]()
    for _, batch in batches(receiver):
        for what in batch:
            number = seen[what]
            seen[what] += 1
            if what in excused or number >= len(places.get(what, ())):
                continue
            place = places[what][number]
            life = what[0], place[0]
            assert place >= newest.get(life, place), f"{what} was told after what happened to it later"
            newest[life] = place


def hooks(scene: Scene, world: World, shown: Shown) -> None:
    """Each hook ran once for each transition, in order; again only where a restart cut it off.

    What had not begun at the end of a life is dropped, unless it is for that end.
    """
    runs = scene.hooks.runs
    assert all(run.agrees for run in runs), "standard input and variables differ"
    may, must = _jobs(shown)
    lost = {_what(entry) for entry in world.lost if entry.mine}
    strange = {run.what for run in runs if run.what not in may and (run.id, run.transition) not in lost}
    assert not strange, f"hooks ran for nothing: {strange}"
    missing = must - {run.what for run in runs if run.ended is not None}
    assert not missing, f"hooks did not run: {missing}"
    ran: dict[Job, Run] = {}
    for run in sorted(runs, key=lambda run: run.begun):
        if run.what in ran and run.what in may:
            _check_again(scene, ran[run.what], run)
        ran[run.what] = run
    _hooks_in_order(world, list(ran), {key: lives[0]["type"] for key, lives in shown.items()})


def _jobs(shown: Shown) -> tuple[set[Job], set[Job]]:
    """Return what hooks may have run for, and what they must have."""
    may, must = set(), set()
    for key, lives in shown.items():
        for life in lives:
            for entry in life["transitions"] if life["target"] == "self" else ():
                what = entry["transition"]
                jobs = {(hook, key, what, entry["at"]) for hook in hooks_for(life["type"], what)}
                may |= jobs
                must |= jobs if life["outcome"] is None or what in ENDINGS else set()
    return may, must


def _check_again(scene: Scene, earlier: Run, later: Run) -> None:
    what, process = earlier.what, scene.processes[earlier.life - 1]
    assert process.ended is not None, f"{what} ran twice in one life"
    if scene.in_doubt(process.ended[0], process.ended[0]):
        return
    cut = earlier.ended is None or process.told_to_end <= earlier.ended + 0.5 or _stood(scene, earlier.life)
    assert cut, f"{what} ran again although it had ended"
    assert later.attempt == earlier.attempt + 1, f"{what}: attempt {later.attempt} after {earlier.attempt}"


def _hooks_in_order(world: World, ran: Sequence[Job], types: Mapping[str, str]) -> None:
    """Check that what hooks ran for is in the order in which it happened, event by event."""
    excused = {entry.id for entry in world.lost}
    for key in types.keys() - excused:
        happened = [entry.transition for entry in _mine(world) if entry.id == key]
        order = iter([(hook, what) for what in happened for hook in hooks_for(types[key], what)])
        late = [job for job in ran if job[1] == key and (job[0], job[2]) not in order]
        assert not late, f"hooks ran in another order than it happened: {late}"


def _stood(scene: Scene, life: int) -> bool:
    process = scene.processes[life - 1]
    assert process.ended is not None
    return any(stop.touches(process.ended[0] - 1, process.ended[0]) for stop in process.stops)


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
