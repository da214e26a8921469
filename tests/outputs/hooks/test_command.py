"""Commands: input, output, status, and why one cannot be started."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.model.jobs import HookOutcome
from exporter.outputs.hooks import command, process
from exporter.outputs.hooks.command import END_BYTES, MOST_BYTES, MOST_LINE_BYTES, MOST_LINES, Lines
from tests.outputs.hooks.support import printed, python, ran, shell

BIG = b"x" * 3_000_000
CUT = " (line cut)"
REST = "(the rest of the output is left out)"


def test_no_shell_reads_the_command() -> None:
    """Arguments arrive as they stand in the configuration."""
    argument = "$HOME `id` ; * \n'\""
    assert ran(*python("print(ascii(sys.argv[1]))"), argument).lines == [ascii(argument)]


def test_a_command_has_its_own_session_and_default_signals() -> None:
    """No terminal and no Ctrl-C reaches it, and a broken pipe ends it as in a shell."""
    code = "print(os.getsid(0) == os.getpgrp() == os.getpid(), signal.getsignal(signal.SIGTERM) == 0)"
    assert ran(*python(code)).lines == ["True True"]
    assert ran(*shell("yes | head -1; exit 3")).result.status == 3


def test_a_variable_is_utf8_whatever_the_locale() -> None:
    """An exporter that was started with an old locale passes on the letters of other languages too."""
    code = (
        "from tests.outputs.hooks.support import ran, shell\n"
        "print(ran(*shell('echo $A | od -An -tx1'), environment={'A': '\\u65e5'}).lines)"
    )
    variables = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert printed(code, variables) == "[' e6 97 a5 0a']\n"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("pass", []),
        ("os.close(0); print('closed')", ["closed"]),
        ("print(len(sys.stdin.buffer.read()))", ["3000000"]),
        ("print(len(open('/dev/stdin', 'rb').read()))", ["3000000"]),
        ("os.close(1); os.close(2); time.sleep(0.05); os._exit(0)", []),
    ],
)
def test_a_command_may_do_with_its_descriptors_as_it_likes(code: str, lines: list[str]) -> None:
    """Input that is never read, closed, or read in part neither hangs nor fails, however much there is."""
    done = ran(*python(code), stdin=BIG)
    assert (done.result.outcome, done.lines) == (HookOutcome.SUCCEEDED, lines)


def refuse(*_: Any) -> int:
    """Refuse as a kernel does where a policy forbids files in memory."""
    raise PermissionError(1, "Operation not permitted")


def test_input_without_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel gives no file in memory, a temporary one does."""
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert ran("cat", stdin=b"hello").lines == ["hello"]


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("exit 3", 3, "exit status 3"),
        ("kill -TERM $$", -15, "killed by SIGTERM"),
        ("kill -45 $$", -45, "killed by signal 45"),
    ],
)
def test_a_command_that_fails_says_how(
    monkeypatch: pytest.MonkeyPatch, code: str, status: int, reason: str
) -> None:
    """Any end but exit status 0 is a failure, with a reason."""
    # A stop of the exporter that comes later than its SIGTERM is a test of its own.
    monkeypatch.setattr(command, "_TOLD_LATER_SECONDS", 0.0)
    result = ran(*shell(code)).result
    assert (result.outcome, result.status, result.reason) == (HookOutcome.FAILED, status, reason)
    assert 0 < result.seconds < 60


def test_lines_come_as_they_are_written(tmp_path: Path) -> None:
    """A line is passed on while the command still runs: here the command waits for its effect."""
    file = tmp_path / "seen"
    code = f"print('first', flush=True)\nwhile not os.path.exists({str(file)!r}): time.sleep(0.01)"
    done = ran(*python(code), output=lambda _: file.touch())
    assert (done.result.outcome, done.lines) == (HookOutcome.SUCCEEDED, ["first"])


def test_both_outputs_are_one_in_their_order() -> None:
    """Standard error goes where standard output goes."""
    assert ran(*shell("echo 1; echo 2 >&2; echo 3; printf 4 >&2")).lines == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("code", "first", "last"),
    [
        ("yes something", "something", REST),
        ("cat /dev/zero", "\0" * MOST_LINE_BYTES + CUT, None),
        (f"yes {'x' * 3000}", "x" * 3000, REST),
        ("cat /dev/urandom", None, REST),
    ],
)
def test_a_flood_of_output_is_cut_and_blocks_nothing(code: str, first: str | None, last: str | None) -> None:
    """Of 50 MB the beginning is handed on, and the command still gets rid of all of it."""
    done = ran(*shell(f"({code}) | head -c 50000000; echo $? > /dev/null; exit 7"))
    assert done.result.status == 7
    assert len(done.lines) <= MOST_LINES + 1
    assert sum(map(len, done.lines)) < MOST_BYTES + 100
    assert done.lines[0] == (first or done.lines[0])
    assert done.lines[-1] == (last or done.lines[-1])


@pytest.mark.parametrize(("own", "hooks"), [("-1\n", "0"), ("0\n", "unchanged"), ("100\n", "unchanged")])
def test_a_hook_is_not_protected_from_the_oom_killer(tmp_path: Path, own: str, hooks: str) -> None:
    """The unit protects the exporter, which is small; what a hook takes is its own affair."""
    for name, content in (("self", own), ("7", "unchanged")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "oom_score_adj").write_text(content)
    process.leave_oom_protection(7, tmp_path)
    assert (tmp_path / "7" / "oom_score_adj").read_text() == hooks


def cut(pieces: Iterable[bytes]) -> list[str]:
    found: list[str] = []
    lines = Lines(found.append)
    for piece in pieces:
        lines.feed(piece)
    lines.close()
    return found


pieces = st.lists(
    st.binary(max_size=20)
    | st.text(max_size=20).map(str.encode)
    | st.sampled_from([b"\n", b"\r\n", b"x" * 3000, b"\n" * 600, "é".encode() * 2500, "😀".encode() * 1100])
)


@given(pieces)
@example([b"x" * MOST_LINE_BYTES, b"x", b"\n", b"y"])
@example([b"\n" * MOST_LINES, b"\n"])
@example([b"x" * (MOST_LINE_BYTES - 2), "日日".encode(), b"\n", b"y"])
def test_pieces_do_not_matter(parts: list[bytes]) -> None:
    """However the output is cut into pieces on its way, the lines are the same, and never too much.

    A long line keeps its beginning, without half a letter, and the next one is whole again.
    """
    found = cut(parts)
    whole = b"".join(parts)
    assert found == cut([whole])
    assert found == cut(whole[at : at + 7] for at in range(0, len(whole), 7))
    assert len(found) <= MOST_LINES + 1
    assert all(len(line) <= MOST_LINE_BYTES + len(CUT) and "\n" not in line for line in found)
    lines = whole.removesuffix(b"\n").split(b"\n") if whole else []
    assert REST in found or len(lines) == len(found)
    for line, shown in zip(lines, found, strict=False):
        if shown == REST:
            break
        text = line.decode(errors="replace").removesuffix("\r")
        assert shown == text if len(line) <= MOST_LINE_BYTES else text.startswith(shown.removesuffix(CUT))


@pytest.mark.parametrize(
    ("output", "end"),
    [
        (b"", ""),
        (b"one\n\n  two\t2 \nthree", "one / two 2 / three"),
        (b"\x1b[1;31mno\x1b[0m \x07\x00\xe2\x80\xaeway\xff\n", "no way\ufffd"),
        (b"10%\r50%\rfailed\n", "10% / 50% / failed"),
        (b"\n".join(b"%d" % number for number in range(9)), "4 / 5 / 6 / 7 / 8"),
        (b"x" * 600 + b"\nlast\n", "last"),
        (b"x" * 600 + "ü".encode(), "x" * (END_BYTES - 2) + "ü"),
        (b"line\n" * 2 * MOST_LINES + b"failed\n", "line / line / line / line / failed"),
    ],
)
@pytest.mark.parametrize("size", [1, 100_000])
def test_the_end_of_the_output(output: bytes, end: str, size: int) -> None:
    """A message has the last few lines without control characters, however the output arrives."""
    lines = Lines(lambda _: None)
    for start in range(0, len(output), size):
        lines.feed(output[start : start + size])
    lines.close()
    assert lines.end() == end


def refused(*argv: str, **variables: str) -> str:
    result = ran(*argv, environment=variables).result
    assert (result.outcome, result.status, result.stopped) == (HookOutcome.FAILED, None, False)
    assert 0 <= result.seconds < 60
    assert result.reason.startswith("cannot be started: ")
    return result.reason.removeprefix("cannot be started: ")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/no/such/drain", "no such file; correct its command"),
        ("/no/such/drain -u alice:secret", "no such file; correct its command"),
        ("no-such-drain", "no such program in PATH; correct its command"),
        ("/etc/passwd/drain", "Not a directory"),
    ],
)
def test_a_missing_program(program: str, reason: str) -> None:
    """What is not a file is not repeated: it may be a command line with a password."""
    assert refused(program, "now") == reason


def test_files_that_are_no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions, a script's first line and the file type give different reasons, by path or from PATH."""
    file = tmp_path / "drain"
    file.write_text("echo hello\n")
    file.chmod(0o644)
    assert refused(str(file)) == f"{file} is not executable by this user"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused("drain") == f"{file} is not executable by this user"
    file.chmod(0o755)
    words = "is not a program for this system, nor a script with a first line like #!/bin/sh"
    assert refused(str(file)) == f"{file} {words}"
    file.write_text("#! /no/such/python3\t-u\nprint()\n")
    assert refused(str(file)) == f"{file} needs /no/such/python3, which does not exist"
    assert refused("drain") == f"{file} needs /no/such/python3, which does not exist"
    file.write_text("#!/bin/sh\r\ntrue\r\n")
    assert refused("drain") == f"{file} needs /bin/sh\\r, which does not exist"


def test_paths_that_lead_to_no_file(tmp_path: Path) -> None:
    """A directory is not a program; a dangling link is named itself, and a circular one by the system."""
    assert refused(str(tmp_path)) == f"{tmp_path} is a directory"
    link, loop = tmp_path / "link", tmp_path / "loop"
    link.symlink_to(tmp_path / "gone")
    assert refused(str(link)) == f"no such file: {link}"
    loop.symlink_to(loop)
    assert refused(str(loop)) == f"{loop}: Too many levels of symbolic links"


def test_too_long_an_environment() -> None:
    """More variables than the system takes are a failed result, not an exception."""
    assert refused("true", BIG="x" * 200_000) == "its arguments and variables are too long together"


def test_what_cannot_be_passed_on() -> None:
    """NUL and letters that the system's encoding lacks are refused before anything runs."""
    nul = "its command line or variables cannot be passed on: embedded null byte"
    assert refused("a\0b") == nul
    assert refused("true", "a\0b") == nul
    assert refused("true", "\ud800") == "its command line has letters that this system cannot write"
    assert refused("true", **{"A=B": "c"}) == (
        "its command line or variables cannot be passed on: illegal environment variable name"
    )
