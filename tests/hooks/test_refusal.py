import errno
import os
from pathlib import Path

import pytest

from exporter.model.jobs import HookOutcome
from tests.hooks.support import ran


def refused(*argv: str, **variables: str) -> str:
    result = ran(*argv, environment=variables).result
    assert (result.outcome, result.status, result.stopped) == (HookOutcome.FAILED, None, False)
    assert 0 <= result.seconds < 60
    assert result.reason.startswith("cannot be started: ")
    return result.reason.removeprefix("cannot be started: ")


def test_a_missing_program() -> None:
    """A missing file is named; a name alone was looked for in PATH."""
    assert refused("/no/such/drain", "now") == "no such file: /no/such/drain"
    assert refused("./no/such/drain") == "no such file: ./no/such/drain"
    assert refused("no-such-drain") == "no such program in PATH: no-such-drain"
    assert refused("/no/such/drain -u alice:secret") == "no such file: /no/such/drain ..."
    assert refused("json://alice:secret@a/b") == "no such file: a text of 23 characters"
    assert refused("/etc/passwd/drain") == "/etc/passwd/drain: Not a directory"


def test_a_path_with_spaces(tmp_path: Path) -> None:
    """Directories that exist are not arguments; what follows the file is left out."""
    folder = tmp_path / "my tools"
    folder.mkdir()
    assert refused(f"{folder}/drain") == f"no such file: {folder}/drain"
    assert refused(f"{folder}/new/drain --password hunter2/x") == f"no such file: {folder}/new/drain ..."
    assert refused("/no such/drain") == "no such file: /no ..."


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
    many = {f"V{number}": "x" * 100_000 for number in range(60)}
    assert refused("true", **many) == "its arguments and variables are too long together"


def test_what_cannot_be_passed_on() -> None:
    """NUL and letters that the system's encoding lacks are refused before anything runs."""
    nul = "its command line or variables cannot be passed on: embedded null byte"
    assert refused("a\0b") == nul
    assert refused("true", "a\0b") == nul
    assert refused("true", "\ud800") == "its command line has letters that this system cannot write"
    assert refused("true", **{"A=B": "c"}) == (
        "its command line or variables cannot be passed on: illegal environment variable name"
    )


def test_no_descriptors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says is the reason; it is a failure of this command, not of the thread that runs it."""

    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", none_left)
    assert refused("/bin/sh") == "/bin/sh: Too many open files"
