"""Apprise's configuration files: the services in one and in the local files that it includes.

Apprise's own loading would wait for a FIFO and would fetch included addresses; it has no limit of its own for
the size that suits this process.
"""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from exporter import files
from exporter.config import yamlfile
from exporter.config.addresses import fault_of
from exporter.errors import ConfigurationError, Mistakes

_SCHEME = re.compile(r"([A-Za-z0-9]{1,32})://")
# A line of the text format: tags, which are optional, and a URL.
_URL = re.compile(r"\s*(?:[\w,: \t-]*=)?\s*([A-Za-z0-9]{1,32}://.*)")
# What Apprise takes for tags, not for an include.
_WORDS = re.compile(r"\s*include\s+[\w, \t-]+", re.IGNORECASE)


class AppriseFile(NamedTuple):
    """The services of a file, as Apprise's plugins, and the files that it includes.

    ``not_taken`` is how many services Apprise does not accept; ``problem`` is what is wrong otherwise.
    """

    plugins: Sequence[Any] = ()
    included: tuple[str, ...] = ()
    not_taken: int = 0
    problem: str = ""


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
    found = _SCHEME.match(name)
    if found is None:
        return main.parent / os.path.expanduser(name)  # noqa: PTH111  # never raises
    if found[1].lower() == "file":
        return Path(unquote(name[found.end() :].partition("?")[0]))
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
    mistakes = Mistakes()
    mistakes.problems += _faults(text, path) if not is_yaml else _yaml_faults(yamlfile.parse(text, path))
    mistakes.check()
    # It logs one error for each service that it does not accept.
    with LogCapture(level=logging.ERROR) as errors:  # type: ignore[no-untyped-call]  # Apprise
        services, includes = ConfigBase.config_parse(
            text, asset=asset, config_format="yaml" if is_yaml else "text"
        )
        return list(services), list(includes), len(errors.getvalue().splitlines())


def _faults(text: str, path: Path) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _URL.fullmatch(line)) and (fault := fault_of(found[1].strip())):
            yield f"{path}:{number}: the URL {fault}"
        elif _WORDS.fullmatch(line):
            yield f"{path}:{number}: Apprise takes this for tags; write include ./ before the file's name"


def _yaml_faults(file: yamlfile.YamlFile) -> Iterator[str]:
    file.known.add("urls")
    urls = file.data.get("urls") if isinstance(file.data, dict) else None
    for index, entry in enumerate(urls if isinstance(urls, list) else ()):
        for url in (entry,) if isinstance(entry, str) else entry if isinstance(entry, dict) else ():
            if isinstance(url, str) and "://" in url and (fault := fault_of(url.strip())):
                yield from file.error(("urls", index), f"the URL {fault}").problems
