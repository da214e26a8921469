"""Hooks when the exporter ends, in peace or not: each once per event and transition, whatever happens."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.hooking import Bench, bench, event, hook, stop
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_hooks import HANG, NOTE, WAIT

KILLS = 6
BEGIN_AND_END = (
    'echo "$EVENT_ID $EVENT_TRANSITION $1 $EVENT_ATTEMPT" >>"$HERE/notes"; sleep 0.03\n'
    'echo "$EVENT_ID $EVENT_TRANSITION $1" >>"$HERE/ended"'
)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        yield made


def test_once_across_restarts(setting: Bench) -> None:
    """What ran does not run again, neither after a stop nor after a kill."""
    setting.configure(hook("note", NOTE))
    with setting.running() as process:
        setting.tell(event())
        eventually(lambda: setting.count("note", "succeeded") == 1)
        stop(process)
    with setting.running() as process:
        setting.tell(event(), event("another"))
        eventually(lambda: setting.count("note", "succeeded") == 1)
        process.kill()
    with setting.running():
        setting.tell(event(status="Started"), event("another"))
        eventually(lambda: setting.count("note", "succeeded") == 1)
    assert setting.notes() == ["note scheduled 1", "note scheduled 1", "note started 1"]


def test_a_killed_exporter_runs_a_hook_again(setting: Bench) -> None:
    """A hook that ran when the exporter was killed runs again, with attempt 2."""
    code = NOTE + '; [ "$EVENT_ATTEMPT" = 2 ] || sleep 600'
    setting.configure(hook("first", code), hook("second", NOTE))
    with setting.running() as process:
        setting.tell(event())
        eventually(setting.notes)
        process.kill()
    with setting.running():
        eventually(lambda: setting.count("second", "succeeded") == 1)
    assert setting.notes() == ["first scheduled 1", "first scheduled 2", "second scheduled 1"]


def test_a_stop_waits_for_no_hook(setting: Bench) -> None:
    """A hook that ignores SIGTERM is killed with all it started, within the 10 s, and runs again later."""
    setting.configure(hook("hangs", HANG), hook("next", NOTE))
    with setting.running() as process:
        setting.tell(event("a"), event("b"))
        eventually(lambda: len(setting.notes()) == 2)
        stop(process)
        eventually(lambda: setting.left() == [])
    setting.configure(hook("hangs", NOTE), hook("next", NOTE))
    with setting.running():
        eventually(lambda: setting.count("next", "succeeded") == 2)
    again = sorted(setting.notes()[2:])
    assert again == ["hangs scheduled 2", "hangs scheduled 2", "next scheduled 1", "next scheduled 1"]
    assert [
        line["level"] for line in setting.log("hook interrupted; it runs again after the next start")
    ] == [
        "warning",
        "warning",
    ]


def test_a_service_manager_ends_hooks_too(setting: Bench) -> None:
    """A stop that sends SIGTERM to all processes at once, as systemd's does: what that ended runs again."""
    setting.configure(hook("hangs", NOTE + '; [ "$EVENT_ATTEMPT" = 2 ] || sleep 600'))
    with setting.running() as process:
        setting.tell(event("a"), event("b"))
        eventually(lambda: len(setting.notes()) == 2)
        # However busy the machine is, the exporter finds both together.
        process.send_signal(signal.SIGSTOP)
        for pid in setting.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        stop(process)
    with setting.running():
        eventually(lambda: setting.count("hangs", "succeeded") == 2)
    assert setting.notes()[2:] == ["hangs scheduled 2", "hangs scheduled 2"]


def test_what_waits_is_kept(setting: Bench) -> None:
    """More events than run at once: those that waited when the exporter stopped run for the first time."""
    setting.configure(hook("wait", WAIT))
    names = [f"e{number}" for number in range(12)]
    with setting.running() as process:
        setting.tell(*map(event, names))
        eventually(lambda: len(setting.notes()) == 8)
        stop(process)
    for name in names:
        (setting.folder / f"go-{name}").touch()
    with setting.running():
        eventually(lambda: setting.count("wait", "succeeded") == 12)
    begun = [line.split()[0] for line in setting.notes() if line.endswith("begins")]
    assert sorted(begun) == sorted(names + begun[:8])


def test_a_night_of_kills(setting: Bench) -> None:
    """Killed again and again: only runs under way are repeated, only runs for what is over are dropped."""
    chance = random.Random(7)
    setting.configure(hook("one", BEGIN_AND_END), hook("two", BEGIN_AND_END))
    for night in range(KILLS):
        status = ("Scheduled", "Started")[night % 2]
        setting.say(*(event(f"{letter}{night // 2}", status) for letter in "abc"))
        with setting.running() as process:
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
    with setting.running():
        setting.tell()
        steps = life(setting)
        ends = {step for step in steps if step[1] in ("completed", "cancelled", "vanished")}
        assert len({step[0] for step in ends}) == len({step[0] for step in steps})
        eventually(lambda: {tuple(line.split()) for line in setting.notes("ended")} >= ends)
    runs = sum_up(setting.notes())
    for event_id in {key[0] for key in steps}:
        ran = [key for key in runs if key[0] == event_id]
        assert ran == [key for key in steps if key[0] == event_id and key in runs]
    assert set(runs) <= set(steps)
    assert all(attempts == sorted(set(attempts)) for attempts in runs.values())
    assert sum(map(len, runs.values())) <= len(steps) + KILLS * 3


def life(setting: Bench) -> list[tuple[str, ...]]:
    """Return event, transition and hook of every run that there is to be, those of one event in order."""
    shown = json.loads(get(f"{setting.url}/api/v1/events"))
    assert shown["current"] == []
    return [
        (event["id"], step["transition"], name)
        for event in shown["past"]
        for step in event["transitions"]
        for name in ("one", "two")
    ]


def sum_up(lines: list[str]) -> dict[tuple[str, ...], list[int]]:
    """Return the attempts of each run, the runs in the order of their first attempts."""
    runs: dict[tuple[str, ...], list[int]] = {}
    for line in lines:
        event_id, transition, name, attempt = line.split()
        runs.setdefault((event_id, transition, name), []).append(int(attempt))
    return runs
