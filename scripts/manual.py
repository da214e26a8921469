"""Write manual page and completions from the command line itself: ``python -m scripts.manual DIR``.

DIR gets ``azure-scheduled-events-exporter.1`` and, under ``bash``, ``zsh`` and ``fish``, the scripts that
click documents for them.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from exporter import __version__
from exporter.cli import main as program
from exporter.config import PROGRAM

_COMPLETE_VARIABLE = f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE"
_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_FILES = """\
.SH FILES
.TP
.I /etc/azure-scheduled-events-exporter/exporter.yml
The configuration of the service; every key is explained there.
.TP
.I /etc/azure-scheduled-events-exporter/environment
Variables for ${...} in the configuration, one NAME=VALUE a line; to be readable by root only.
.SH EXIT STATUS
.TP
.B 0
Success; for \\fBrun\\fR, after SIGTERM or SIGINT.
.TP
.B 2
A flag or the configuration is wrong.
.TP
.B 1
Any other error. \\fBapprove\\fR ends with 3 if the event was cancelled.
.SH SEE ALSO
.BR systemctl (1),
.UR https://github.com/azure-scheduled-events-exporter/azure-scheduled-events-exporter
.UE
"""


def page() -> str:
    """Return the manual page as troff source."""
    context = click.Context(program, info_name=PROGRAM)
    return "\n".join([*_head(), *_commands(context), _FILES])


def completion(shell: str) -> str:
    """Return the script that completes commands and flags in a shell."""
    return _SHELLS[shell](program, {}, PROGRAM, _COMPLETE_VARIABLE).source()


def _head() -> Iterator[str]:
    yield f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield from (".nh", ".ad l", ".SH NAME", _text(f"{PROGRAM} - {_paragraphs(program)[0].rstrip('.')}"))
    yield from (
        ".SH SYNOPSIS",
        f".B {_text(PROGRAM)}",
        r"\fICOMMAND\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...",
    )
    yield from (".SH DESCRIPTION", *_described(program)[1:])


def _commands(context: click.Context) -> Iterator[str]:
    yield ".SH COMMANDS"
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name, parent=context)
        usage = " ".join(command.collect_usage_pieces(own))
        yield from (f'.SS "{_text(name)} {_text(usage)}"', *_described(command))
        for option in command.get_params(own):
            record = option.get_help_record(own)
            if isinstance(option, click.Option) and record is not None:
                yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(record[1]))
                if option.envvar:
                    yield _text(f"Environment: {option.envvar}.")


def _described(command: click.Command) -> list[str]:
    lines = []
    for paragraph in _paragraphs(command):
        lines += [".PP", _text(paragraph)]
    return lines[1:]


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]


def _text(text: str) -> str:
    """Return text that troff shows as it is; a line that began with a dot would be a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    # A line may be broken between the choices of a flag.
    return r"\&" + escaped.replace("|", r"|\:")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
def main(directory: Path) -> None:
    """Write the manual page and the completions into a directory."""
    files = {f"{PROGRAM}.1": page(), **{f"{shell}/{PROGRAM}": completion(shell) for shell in _SHELLS}}
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
