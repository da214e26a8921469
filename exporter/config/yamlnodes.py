"""From YAML text to plain data, with the lines of the keys, for `exporter.config.yamlfile`."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from exporter.errors import ConfigurationError, Mistakes, may_be_secret

Keys = tuple[str | int, ...]

# Aliases of aliases make endless data of a few lines.
_MOST_VALUES = 100_000
# Nobody reads more at once, and looking for each takes as long as for all.
MOST_MISTAKES = 100


def dotted(keys: Keys) -> str:
    """Write a place in a file as people do: ``notifications.targets[0].url``.

    Of a key that may be a secret, which somebody wrote in the wrong place, only the length is shown.
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{_shown(key)}" for key in keys)
    return text.removeprefix(".")


def _shown(key: str) -> str:
    return f"(a key of {len(key)} characters)" if may_be_secret(key) else key


def construct(text: str, lines: dict[Keys, int], path: Path, mistakes: Mistakes) -> Any:
    """Make plain data of YAML text, and put the line, from 1, of every key into ``lines``.

    A key that is given twice is put into ``mistakes``; its last value stays.

    Raises:
        ConfigurationError: a text holds half a character or a NUL, or aliases unfold without end.
        yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError: it is not valid YAML.
    """
    loader = _loader(text)
    try:
        node = loader.get_single_node()
        _locate(node, (), lines, _Reading(path, mistakes, itertools.count()))
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _loader(text: str) -> Any:
    """Make a loader that leaves dates, times of day and numbers with leading zeros as the text they are.

    YAML 1.1 reads 2020-07-01 as a date, 22:00 as the number 1320 and 010 as 8.
    """
    import yaml

    plain = {
        "tag:yaml.org,2002:int": r"[-+]?(?:0|[1-9][0-9]*)",
        "tag:yaml.org,2002:float": r"[-+]?[0-9]*\.[0-9]+",
    }

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's own name for it
            first: [
                (tag, form) for tag, form in resolvers if tag not in {*plain, "tag:yaml.org,2002:timestamp"}
            ]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    for tag, form in plain.items():
        Loader.add_implicit_resolver(tag, re.compile(f"^{form}$"), list("-+0123456789."))
    return Loader(text)


class _Reading(NamedTuple):
    path: Path
    mistakes: Mistakes
    visits: Iterator[int]

    def given_twice(self, keys: Keys, line: int, lines: dict[Keys, int]) -> None:
        """Note that a key is given twice, and forget what is below the first."""
        error = ConfigurationError(
            f"{self.path}:{line}: {dotted(keys)}: is given twice, first on line {lines[keys]}; keep one"
        )
        if len(self.mistakes.problems) >= MOST_MISTAKES:
            raise error
        self.mistakes.problems += error.problems
        for known in [known for known in lines if known[: len(keys)] == keys]:
            del lines[known]


def _locate(node: Any, keys: Keys, lines: dict[Keys, int], reading: _Reading) -> None:
    import yaml

    if next(reading.visits) > _MOST_VALUES:
        raise ConfigurationError(
            f"{reading.path}:1: unfolds to more than {_MOST_VALUES} values; use fewer aliases"
        )
    if isinstance(node, yaml.ScalarNode):
        node.value = _unicode(node, reading.path)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.value = _unicode(key, reading.path)
            name = str(key.value)
            here = (*keys, name)
            line = key.start_mark.line + 1
            if here in lines and key.tag != "tag:yaml.org,2002:merge":
                reading.given_twice(here, line, lines)
            lines[here] = line
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                # A key is a name, also where YAML reads a number or, as in `on`, a boolean.
                key.tag = "tag:yaml.org,2002:str"
            _locate(value, here, lines, reading)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*keys, index)] = value.start_mark.line + 1
            _locate(value, (*keys, index), lines, reading)


def _unicode(scalar: Any, path: Path) -> str:
    """Join the halves of what JSON writes as two escapes; PyYAML leaves them apart."""
    text: str = scalar.value
    line = scalar.start_mark.line + 1
    if "\0" in text:
        # No file, program, header or message can have it in its name.
        raise ConfigurationError(f"{path}:{line}: holds a NUL character; leave it out")
    try:
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}:{line}: holds half a character; write it whole") from error
