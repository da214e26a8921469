"""Apprise's configuration files: the services in one and in the local files that it includes.

Apprise's own loading would wait for a FIFO and would fetch included addresses; it has no limit of its own for
the size that suits this process.
"""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from exporter import files
from exporter.config import yamlfile
from exporter.errors import ConfigurationError, Mistakes

_SCHEME = re.compile(r"([A-Za-z0-9]{1,32})://")
# What Apprise takes for tags, not for an include.
_WORDS = re.compile(r"\s*include\s+[\w, \t-]+", re.IGNORECASE)


class AppriseFile(NamedTuple):
    """The services of a file, as Apprise's plugins, and the files that it includes."""

    plugins: Sequence[Any] = ()
    included: tuple[str, ...] = ()
    not_taken: int = 0  # how many services Apprise does not accept
    problem: str = ""  # what is wrong otherwise


def read(path: str, asset: Any) -> AppriseFile:
    """Read a file and, as the command ``apprise`` does, the files that it includes, but not theirs."""
    mistakes, main = Mistakes(), Path(path)
    plugins: list[Any] = []
    included: list[str] = []
    not_taken = 0
    with mistakes:
        plugins, includes, not_taken = _parsed(main, asset)
        for name in dict.fromkeys(includes):
            with mistakes:
                file = _local(name, main)
                included.append(str(file))
                more, nested, count = _parsed(file, asset)
                if nested:
                    raise ConfigurationError(
                        f"{file}: includes further files, which is not possible there; include them in {main}"
                    )
                plugins += more
                not_taken += count
    problem = "; ".join(mistakes.problems)
    return AppriseFile(() if problem else plugins, tuple(included), not_taken, problem)


def _local(name: str, main: Path) -> Path:
    """Return the path of an included file; a relative one is next to the file that includes it."""
    match = _SCHEME.match(name)
    if match is None:
        return main.parent / os.path.expanduser(name)  # noqa: PTH111  # never raises
    if match[1].lower() == "file":
        return Path(unquote(name[match.end() :].partition("?")[0]))
    raise ConfigurationError(f"{main}: includes a URL; only local files can be included")


def _parsed(path: Path, asset: Any) -> tuple[list[Any], list[str], int]:
    """Return the services of one file, what it includes, and how many services Apprise does not accept."""
    from apprise import ConfigBase, LogCapture

    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{path}: the file cannot be read: {reason}") from error
    is_yaml = path.suffix.lower() in (".yml", ".yaml")
    # Apprise does not say where a file is wrong.
    if is_yaml:
        yamlfile.parse(text, path)
    for number, line in enumerate(() if is_yaml else text.splitlines(), 1):
        if _WORDS.fullmatch(line):
            raise ConfigurationError(
                f"{path}:{number}: Apprise takes this for tags; write include ./ before the file's name"
            )
    # It logs one error for each service that it does not accept.
    with LogCapture(level=logging.ERROR) as errors:  # type: ignore[no-untyped-call]  # Apprise
        services, includes = ConfigBase.config_parse(
            text, asset=asset, config_format="yaml" if is_yaml else "text"
        )
        return list(services), list(includes), len(errors.getvalue().splitlines())
