import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks import command
from tests.end_to_end.program import eventually
from tests.outputs.hooks.support import kill, marked, nothing_leaks, printed, python, ran, shell

IGNORING = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
# Two generations below the command, all ignoring SIGTERM, each with the pipe open.
DEAF_FAMILY = IGNORING + "os.fork(); os.fork(); print('deaf', flush=True); time.sleep(600)"
HELD_OPEN = "(a process that it started keeps the output open; the rest is not read)"
KILLED = "; killed, as SIGTERM had not ended it after 300ms"


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill sooner than users would like it."""
    monkeypatch.setattr(command, "GRACE_SECONDS", 0.3)


def ready(lines: list[str], _: str) -> bool:
    return bool(lines)


def stopped(_: list[str], mark: str) -> bool:
    return any(Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "T" for pid in marked(mark))


def test_a_command_may_tidy_up_when_asked_to_end() -> None:
    """What it writes on its way out is handed on; its exit status 0 does not make it in time."""
    code = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    done = ran(*shell(code), late=ready)
    assert (done.lines[0], done.lines[-1]) == ("ready", "tidied")
    assert (done.result.outcome, done.result.status) == (HookOutcome.TIMED_OUT, 0)


def test_children_may_tidy_up_when_their_parent_is_gone() -> None:
    """The time to tidy up is the whole group's: the end of the command itself does not cut it short."""
    child = "trap 'sleep 0.2; echo child tidied; exit' TERM; echo ready; while :; do sleep 0.01; done"
    done = ran(*shell(f"({child}) & sleep 600"), late=ready)
    assert (done.lines[0], done.lines[-1]) == ("ready", "child tidied")
    assert done.left == []


DEAF_CHILDREN = "(trap '' TERM; echo; exec > /dev/null 2>&1; sleep 600; sleep 600) & sleep 600"


@pytest.mark.parametrize(
    ("argv", "late", "status", "killed"),
    [
        (shell("echo; sleep 600 & sleep 600"), ready, -15, ""),
        (python(DEAF_FAMILY), ready, -9, KILLED),
        (shell(DEAF_CHILDREN), ready, -15, KILLED),
        (shell("trap 'exit 1' TERM; kill -STOP $$; sleep 600"), stopped, 1, ""),
    ],
    ids=["all end", "a family that ignores SIGTERM", "children that ignore it", "one under SIGSTOP"],
)
def test_a_command_that_takes_too_long(
    request: pytest.FixtureRequest,
    argv: tuple[str, ...],
    late: Callable[[list[str], str], bool],
    status: int,
    killed: str,
) -> None:
    """At the time limit SIGTERM goes to all of the group, and SIGKILL to all if any of it does not end."""
    if killed:
        request.getfixturevalue("short_grace")
    done = ran(*argv, late=late)
    assert (done.result.outcome, done.result.status) == (HookOutcome.TIMED_OUT, status)
    assert (done.result.reason, done.result.stopped) == (f"did not end within 1m{killed}", False)
    assert done.left == []


@pytest.mark.usefixtures("short_grace")
def test_who_leaves_the_group_does_not_hold_up_the_end() -> None:
    """A process in its own session continues with the pipe open, and is not waited for."""
    done = ran(*shell("setsid sh -c 'echo; exec sleep 600' & sleep 600"), late=ready)
    assert done.result.outcome is HookOutcome.TIMED_OUT
    assert done.lines[1:] == [HELD_OPEN]
    assert len(done.left) == 1
    kill(done.left)


def test_what_cannot_be_killed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that no signal reaches, as one that runs as root, is reported and waited for no longer."""
    monkeypatch.setattr(command, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(command, "KILLED_SECONDS", 0.1)
    killpg = os.killpg

    def forbidden(group: int, number: int) -> None:
        if number:
            raise PermissionError(1, "Operation not permitted")
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", forbidden)
    done = ran(*shell("exec sleep 600"), timeout=0.1)
    assert (done.result.outcome, done.result.status) == (HookOutcome.TIMED_OUT, None)
    assert done.result.reason == "did not end within 100ms; it could not even be killed"
    # The fixture waits until it is reaped.
    kill(done.left)


def test_a_daemon_with_its_own_output_lives_on() -> None:
    """What a command starts on purpose and leaves is not the runner's, though it is of the same group."""
    done = ran(*shell("sleep 600 > /dev/null 2>&1 < /dev/null & echo started"))
    assert (done.result.outcome, done.lines) == (HookOutcome.SUCCEEDED, ["started"])
    assert len(done.left) == 1
    kill(done.left)


def test_what_merely_holds_the_output_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in the pipe at the end of the command is read; what still holds the pipe continues, unread."""
    monkeypatch.setattr(command, "LINGER_SECONDS", 0.0)
    done = ran(*shell("sleep 600 & printf started"))
    assert done.result.outcome is HookOutcome.SUCCEEDED
    assert done.lines == ["started", HELD_OPEN]
    assert len(done.left) == 1
    kill(done.left)


def test_a_flood_from_what_lives_on_holds_up_nothing() -> None:
    """Output without end after the command's own end is not read for long; the writer ends by SIGPIPE."""
    done = ran(*shell("yes & exit 4"))
    assert done.result.status == 4
    eventually(lambda: not done.left)


def test_a_failing_callback_leaves_no_process() -> None:
    """After any error in the exporter, the command does not keep running unsupervised."""
    seen: list[str] = []

    def fail(line: str) -> None:
        seen.append(line)
        raise KeyError(line)

    code = "while True: print(os.environ['TEST_MARK'], flush=True)"
    with pytest.raises(KeyError):
        ran(*python(IGNORING + code), output=fail)
    assert len(seen) == 1
    assert marked(seen[0]) == []


@pytest.mark.parametrize(
    ("argv", "timeout", "outcome"),
    [
        (shell("echo $$; exit 3"), 60.0, (HookOutcome.FAILED, 3)),
        (shell("sleep 600 & sleep 600"), 0.2, (HookOutcome.TIMED_OUT, -15)),
        (("/no/such/file",), 60.0, (HookOutcome.FAILED, None)),
    ],
)
def test_twenty_at_once(argv: tuple[str, ...], timeout: float, outcome: tuple[HookOutcome, int]) -> None:
    """Any number run side by side, and none takes another's output, status, or descriptors."""
    with nothing_leaks(), ThreadPoolExecutor(20) as pool:
        several = list(pool.map(lambda _: ran(*argv, timeout=timeout), range(40)))
    assert {(done.result.outcome, done.result.status) for done in several} == {outcome}
    assert [done.left for done in several] == [[]] * 40
    numbers = [line for done in several for line in done.lines]
    assert len(set(numbers)) == len(numbers)


SLOW_TO_REAP = """
import ctypes, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
code = '''
from tests.outputs.hooks.support import ran, shell
print(ran(*shell("sleep 600 & sleep 600"), timeout=0.2).result.reason)
'''
subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_zombies_of_others_have_ended() -> None:
    """Orphans whom the first process of a container never reaps are not taken for survivors."""
    assert printed(SLOW_TO_REAP) == "did not end within 200ms\n"
