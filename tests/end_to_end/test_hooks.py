"""Hooks of the running program: their input, their order, and the reports about them."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator import Fault
from tests.end_to_end.hooking import EVENT, NAME, Bench, bench, event, hook, stop
from tests.end_to_end.program import eventually, get
from tests.end_to_end.test_notifications import metric, reload
from tests.notifications.receivers import http_receiver
from tests.state_support import alter
from tests.tracing.receiver import spans

TRACE = EVENT.replace("-", "").lower()
NOTE = 'echo "$1 $EVENT_TRANSITION $EVENT_ATTEMPT" >>"$HERE/notes"'
TELL_ALL = 'env -0 >"$HERE/env"; cat >"$HERE/stdin"; ' + NOTE
# Says that it begins, and that it ends once the file of its event is there.
WAIT = (
    'echo "$EVENT_ID $1 begins" >>"$HERE/notes"\n'
    'while [ ! -e "$HERE/go-$EVENT_ID" ]; do sleep 0.02; done\n'
    'echo "$EVENT_ID $1 ends" >>"$HERE/notes"'
)
HANG = 'trap "" TERM; echo "$EVENT_ID $1 hangs" >>"$HERE/notes"; sleep 600 & wait; wait'


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench."""
    with bench(tmp_path) as made:
        yield made


def told(setting: Bench) -> tuple[dict[str, str], Any]:
    """Read a hook's variables and its standard input."""
    pairs = (setting.folder / "env").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs), json.loads((setting.folder / "stdin").read_text())


def test_what_a_hook_is_told(setting: Bench) -> None:
    """The API's EVENT on standard input and in variables, a trace, and nothing of systemd's protocol."""
    setting.configure(hook("note", TELL_ALL))
    of_systemd = {"NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
    with setting.running(**of_systemd):
        setting.tell(event(Description="a\0 lone \ud83d line\n", DurationInSeconds=-1))
        eventually(setting.notes)
        (shown,) = json.loads(get(f"{setting.url}/api/v1/events"))["current"]
    variables, read = told(setting)
    assert not of_systemd.keys() & variables.keys()
    extra = {"transition": "scheduled", "at": shown["first_seen"], "instance": NAME, "attempt": 1}
    assert read == shown | extra
    wanted = {
        "EVENT_ID": EVENT,
        "EVENT_TYPE": "Reboot",
        "EVENT_STATUS": "Scheduled",
        "EVENT_SOURCE": "Platform",
        "EVENT_NOTBEFORE": "2026-03-04T22:15:00Z",
        "EVENT_RESOURCES": NAME,
        "EVENT_RESOURCETYPE": "VirtualMachine",
        "EVENT_DURATION": "",
        "EVENT_TRANSITION": "scheduled",
        "EVENT_ATTEMPT": "1",
        "INSTANCE_NAME": NAME,
    }
    assert {name: variables[name] for name in wanted} == wanted
    assert "\0" not in variables["EVENT_DESCRIPTION"]
    version, trace, span, flags = variables["TRACEPARENT"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "00")
    assert len(span) == 16


def test_a_hook_is_a_span(setting: Bench) -> None:
    """With a receiver, TRACEPARENT is the span of the hook, below the event's root span."""
    failing = hook("fail", "exit 3", "scheduled")
    setting.configure(hook("note", TELL_ALL, "scheduled"), failing)
    with http_receiver() as receiver:
        otlp = f"http://{receiver.authority}"
        with setting.running(OTEL_EXPORTER_OTLP_ENDPOINT=otlp):
            setting.tell(event())
            eventually(lambda: len([s for s in spans(receiver) if s.name.startswith("hook ")]) == 2)
            setting.tell(event(status="Started"))
            setting.tell()
            root = eventually(lambda: [s for s in spans(receiver) if not s.parent_id])[0]
        by_name = {span.name: span for span in spans(receiver)}
    note, failed = by_name["hook note"], by_name["hook fail"]
    assert told(setting)[0]["TRACEPARENT"] == f"00-{TRACE}-{note.span_id}-01"
    assert {note.parent_id, failed.parent_id} == {root.span_id}
    assert (note.failed, failed.failed) == (False, True)
    assert (note.fact("hook.outcome"), failed.fact("hook.outcome")) == ("succeeded", "failed")
    assert note.start <= note.end <= failed.start


def test_in_order_and_side_by_side(setting: Bench) -> None:
    """One event's hooks wait for each other, transition after transition; another event's do not."""
    setting.configure(hook("one", WAIT, "scheduled", "started"), hook("two", WAIT, "scheduled"))
    with setting.running():
        setting.tell(event("a"))
        eventually(lambda: setting.notes() == ["a one begins"])
        setting.tell(event("a", "Started"), event("b"))
        (setting.folder / "go-b").touch()
        eventually(lambda: len(setting.notes()) == 5)
        assert setting.notes()[1:] == ["b one begins", "b one ends", "b two begins", "b two ends"]
        (setting.folder / "go-a").touch()
        eventually(lambda: len(setting.notes()) == 10)
    of_a = [line.removeprefix("a ") for line in setting.notes() if line.startswith("a ")]
    assert of_a == [f"{name} {what}" for name in ("one", "two", "one") for what in ("begins", "ends")]


def test_all_transitions(setting: Bench) -> None:
    """Hooks prepare, and hooks recover: each transition runs those that name it."""
    recovering = ("completed", "cancelled", "vanished")
    setting.configure(hook("prepare", NOTE, "scheduled", "started"), hook("recover", NOTE, *recovering))
    with setting.running():
        setting.tell(event("a"), event("b"), event("c"), event("d", Resources=["demo_1"]))
        setting.tell(event("a", "Started"), event("b"), event("c"))
        setting.tell(event("b"), event("c"))
        setting.tell(event("c"))
        setting.tell(step=2)
        eventually(lambda: len(setting.notes()) == 7)
    lines = sorted(setting.notes())
    assert lines == [
        "prepare scheduled 1",
        "prepare scheduled 1",
        "prepare scheduled 1",
        "prepare started 1",
        "recover cancelled 1",
        "recover completed 1",
        "recover vanished 1",
    ]


def test_what_goes_wrong_holds_up_nothing(setting: Bench) -> None:
    """A missing program, a failure and a crash are counted and logged, and the next hook runs."""
    absent: dict[str, Any] = {"name": "absent", "command": ["/no/such/program"]}
    says = "echo hello; echo oops >&2; printf 'a=\"b\" \\033[31m'; exit 3"
    setting.configure(absent, hook("says", says), hook("dies", "kill -SEGV $$"), hook("last", NOTE))
    with setting.running():
        setting.tell(event())
        eventually(lambda: any(line["hook"] == "last" for line in setting.log("hook ended")))
        assert [setting.count(name, "failed") for name in ("absent", "says", "dies", "last")] == [1, 1, 1, 0]
        assert metric(setting.url, "hook_duration_seconds_count", hook="says") == 1
    assert [line["line"] for line in setting.log("hook output")] == ["hello", "oops", 'a="b" \x1b[31m']
    ended = {line["hook"]: line for line in setting.log("hook ended")}
    assert ended["absent"]["reason"] == "cannot be started: no such file: /no/such/program"
    assert ended["says"]["reason"] == "exit status 3"
    assert ended["dies"]["reason"] == "killed by SIGSEGV"
    assert {line["event_id"] for line in ended.values()} == {EVENT}
    assert {line["trace_id"] for line in ended.values()} == {TRACE}
    assert [ended[name]["level"] for name in ("says", "last")] == ["warning", "info"]


def test_a_time_limit(setting: Bench) -> None:
    """At the limit the whole group is asked to end, and killed where it does not; the next hook runs."""
    obedient = hook("obedient", "sleep 600 & sleep 600", timeout="100ms")
    # Long enough for a shell to begin on a busy machine.
    setting.configure(obedient, hook("stubborn", HANG, timeout="1s500ms"), hook("last", NOTE))
    with setting.running():
        setting.tell(event())
        eventually(lambda: setting.count("obedient", "timed_out") == 1)
        eventually(lambda: setting.notes() == [f"{EVENT} stubborn hangs"])
        eventually(lambda: setting.count("last", "succeeded") == 1)
        assert setting.count("stubborn", "timed_out") == 1
        eventually(lambda: setting.left() == [])
    reasons = {line["hook"]: line["reason"] for line in setting.log("hook ended")}
    assert reasons["obedient"] == "did not end within 100ms"
    assert reasons["stubborn"] == "did not end within 1s500ms; killed, as SIGTERM had not ended it after 5s"


def test_the_name_comes_late(setting: Bench) -> None:
    """Nothing runs without the VM's name; once it is known, after a restart too, what was missed does."""
    setting.configure(hook("note", NOTE))
    setting.imds.simulator.set_fault(Fault(mode="error", endpoint="instance"))
    with setting.running() as process:
        eventually(lambda: metric(setting.url, "degraded", reason="instance_unknown") == 1)
        setting.tell(event("gone"))
        setting.tell(event(), event("other", Resources=["demo_1"]))
        setting.tell(event(DurationInSeconds=77), event("other", Resources=["demo_1"]))
        assert setting.notes() == []
        stop(process)
    with setting.running() as process:
        eventually(lambda: metric(setting.url, "degraded", reason="instance_unknown") == 1)
        setting.configure(hook("note", NOTE), instance={"name": NAME})
        process.send_signal(signal.SIGHUP)
        eventually(lambda: len(setting.notes()) == 2)
        setting.tell(event("other", Resources=["demo_1"]))
        eventually(lambda: len(setting.notes()) == 3)
    assert setting.notes() == ["note scheduled 1", "note updated 1", "note cancelled 1"]


def test_a_reload_changes_hooks(setting: Bench) -> None:
    """A new hook runs for what happens from then on; of one that is gone not even what waits runs."""
    setting.configure(hook("old", WAIT), hook("gone", NOTE))
    with setting.running() as process:
        setting.tell(event("a"))
        eventually(lambda: setting.notes() == ["a old begins"])
        setting.configure(hook("new", 'echo "$1 $EVENT_ID" >>"$HERE/notes"'))
        reload(process, setting.url)
        (setting.folder / "go-a").touch()
        eventually(lambda: len(setting.notes()) == 2)
        setting.tell(event("a"), event("b"))
        eventually(lambda: len(setting.notes()) == 3)
        eventually(lambda: setting.log("pending hook is no longer configured"))
        stop(process)
    assert setting.notes() == ["a old begins", "a old ends", "new b"]


def test_hanging_hooks_hold_up_only_their_kind(setting: Bench) -> None:
    """Eight hooks that hang leave polling alone, and let a ninth event's run as soon as one of them ends."""
    setting.configure(hook("wait", WAIT))
    names = [f"e{number}" for number in range(9)]
    with setting.running():
        setting.tell(*(event(name) for name in names))
        eventually(lambda: len(setting.notes()) == 8)
        polls = metric(setting.url, "polls_total", outcome="success")
        eventually(lambda: metric(setting.url, "polls_total", outcome="success") >= polls + 3)
        begun = [line.split()[0] for line in setting.notes()]
        assert len(set(begun)) == 8
        (late,) = set(names) - set(begun)
        (setting.folder / f"go-{begun[0]}").touch()
        eventually(lambda: f"{late} wait begins" in setting.notes())
        assert [line for line in setting.notes() if line.endswith("ends")] == [f"{begun[0]} wait ends"]


def test_a_failure_is_told_at_once_and_once(setting: Bench) -> None:
    """A failed hook is a transition also while IMDS does not answer; a kill and a restart repeat nothing."""
    with http_receiver() as chat:
        target = {"name": "chat", "url": f"json://{chat.authority}/"}
        setting.configure(
            hook("drain", f"{WAIT}\nexit 3", "scheduled"),
            hook("alarm", "exit 4", "hook_failed"),
            notifications={"targets": [target]},
        )
        flags = ("--instance.name", NAME)
        with setting.running(*flags) as process:
            setting.tell(event())
            eventually(lambda: setting.notes() == [f"{EVENT} drain begins"])
            setting.imds.simulator.set_fault(Fault(mode="error"))
            eventually(lambda: metric(setting.url, "up") == 0)
            (setting.folder / f"go-{EVENT}").touch()
            eventually(lambda: setting.count("alarm", "failed") == 1)
            eventually(lambda: len(chat.requests) == 2)
            assert metric(setting.url, "up") == 0
            # What arrived just before a kill comes again.
            eventually(lambda: metric(setting.url, "notifications_pending", target="chat") == 0)
            process.kill()
        setting.imds.simulator.set_fault(None)
        with setting.running(*flags):
            setting.tell()
            eventually(lambda: len(chat.requests) == 3)
            (shown,) = json.loads(get(f"{setting.url}/api/v1/events"))["past"]
    assert "hook drain failed: exit status 3" in chat.requests[1].json["message"]
    assert [entry["transition"] for entry in shown["transitions"]] == [
        "scheduled",
        "hook_failed",
        "cancelled",
    ]
    assert (shown["transitions"][1]["hook"], shown["transitions"][1]["run"]) == ("drain", 1)


def test_a_kill_between_the_end_of_a_hook_and_its_transition(setting: Bench) -> None:
    """The outcome is in the state by then, and becomes a transition after the restart, IMDS or not."""
    setting.configure(hook("drain", WAIT, "scheduled"))
    with setting.running() as process:
        setting.tell(event())
        eventually(lambda: setting.notes() == [f"{EVENT} drain begins"])
        process.kill()
        process.wait()
    ended = '{"attempts":1,"done":"2026-03-04T22:00:00Z","outcome":"timed_out"}'
    alter(setting.folder / "state", "UPDATE entries SET value = ? WHERE kind = 'hook'", ended.encode())
    with setting.running():
        eventually(
            lambda: (
                [line["detail"] for line in setting.log("transition") if "detail" in line]
                == ["hook drain timed out"]
            )
        )
        assert metric(setting.url, "transitions_total", event_type="Reboot", transition="hook_failed") == 1
        assert setting.notes() == [f"{EVENT} drain begins"]
