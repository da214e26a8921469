"""YAML files with the line of every key, so that every mistake has file, line, key and remedy."""

import io
import re
from pathlib import Path
from typing import Any

from exporter import files
from exporter.errors import ConfigurationError, not_text, one_line

Keys = tuple[str | int, ...]

# Of each, real files have less than a tenth. PyYAML takes up to a minute for a mebibyte of brackets; aliases
# can unfold a few lines to endless data.
_MOST_CHARACTERS = 256 * 1024
_MOST_VALUES = 20_000
_DEEPEST = 32
_TOO_DEEP = "it is nested too deeply, or an anchor contains itself"
_TAG = "tag:yaml.org,2002:"
# In YAML 1.1 2020-07-01 is a date, 22:00 the number 1320 and 010 is 8; here they stay text.
_PLAIN = {
    f"{_TAG}int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    f"{_TAG}float": re.compile(r"[-+]?[0-9]*\.[0-9]+"),
    f"{_TAG}timestamp": re.compile("(?!)"),
}
# What PyYAML reports for common mistakes, and what to write instead.
_BRACE = "no { is possible here; within {...} or [...] put ${NAME} in quotes"
_REMEDIES = {
    "expected ',' or '}', but got '{'": _BRACE,
    "expected ',' or ']', but got '{'": _BRACE,
    "expected <block end>": "the line is indented unlike those above; align the keys",
    r"found character '\t'": "the line is indented with a tab; use spaces",
    "could not determine a constructor": "the tag is not supported; put text in quotes",
    "found unhashable key": "a key is a list or a mapping; use text",
    "but found another document": "there is a second document; keep one",
    "mapping values are not allowed": "a colon in a value, or too far indented; put the value in quotes",
}
# Values at these keys, and in them, may be secrets.
_SECRET_KEYS = frozenset({"url", "urls", "webhook", "headers", "basic_auth_users", "key"})
# What an error repeats of a key. Where the space after a colon is missing, a key contains its value.
_KEY = re.compile(r"[\w./-]{1,100}")
_QUOTED = re.compile(r"(?<= )(['\"])(?!\\?.\1).+\1")  # not a single character, escaped or not


class YamlFile:
    """A parsed file: plain data, the line of every key, and the places of faulty values.

    Without a path, the data are empty, and errors name the key alone. ``repeated`` are the keys that are set
    again, each with its line and the one before.
    """

    def __init__(self, path: Path = Path()) -> None:
        self.path = path
        self.data: Any = {}
        self.repeated: list[tuple[Keys, int, int]] = []
        self.faulty: set[Keys] = set()
        self._lines: dict[Keys, int] = {}
        self._values = self._characters = 0

    def error(self, keys: Keys, message: str, line: int = 0) -> ConfigurationError:
        """Return the error ``file:line: key: message``, by default with the line of the key or its parent."""
        nearest = keys
        while nearest and nearest not in self._lines:
            nearest = nearest[:-1]
        name = dotted(tuple(map(_shown, keys)))
        text = f"{f'{name}: ' if name else ''}{message}"
        # The error is shown on a terminal, which must not be controlled by the file.
        text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
        place = f"{self.path}:{line or self._lines.get(nearest, 1)}: "
        return ConfigurationError(text if self.path == Path() else place + text)

    def is_sound(self, *place: str | int) -> bool:
        """Return whether nothing faulty is at a place, in it or around it."""
        return not any(place[: len(faulty)] == faulty[: len(place)] for faulty in self.faulty)

    def locate(self, node: Any, keys: Keys = ()) -> None:
        """Record the lines of a PyYAML node and its descendants, and correct their texts and tags."""
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ConfigurationError(
                f"{self.path}:1: unfolds to more than {_MOST_VALUES} values; use fewer aliases"
            )
        if len(keys) > _DEEPEST:
            raise _invalid(self.path, node.start_mark.line + 1, _TOO_DEEP)
        if node.id == "scalar":
            node.value = self._text(node)
            plain = _PLAIN.get(node.tag)
            if plain and node.value[:1] in set("-+.0123456789") and not plain.fullmatch(node.value):
                node.tag = f"{_TAG}str"
        elif node.id == "sequence":
            for index, value in enumerate(node.value):
                self._lines[(*keys, index)] = value.start_mark.line + 1
                self.locate(value, (*keys, index))
        else:
            for key, value in node.value:
                here = (*keys, self._key(key, keys))
                self._lines[here] = key.start_mark.line + 1
                self.locate(value, here)

    def _key(self, node: Any, keys: Keys) -> str:
        """Return the key of a node; of one that is repeated, the first value is dropped."""
        line = node.start_mark.line + 1
        merges = node.tag == f"{_TAG}merge"
        if node.id == "scalar":
            node.value = self._text(node)
            if not merges:
                # A key is a name even if YAML reads a number or, as in `on`, a boolean.
                node.tag = f"{_TAG}str"
        here = (*keys, str(node.value))
        if here in self._lines and not merges:
            self.repeated.append((here, line, self._lines[here]))
            for inner in [inner for inner in self._lines if inner[: len(here)] == here]:
                del self._lines[inner]
        return str(node.value)

    def _text(self, scalar: Any) -> str:
        """Join surrogate pairs, which JSON writes as two escapes and PyYAML does not join."""
        text: str = scalar.value
        place = f"{self.path}:{scalar.start_mark.line + 1}"
        self._characters += len(text)
        if self._characters > _MOST_CHARACTERS:
            raise ConfigurationError(
                f"{place}: unfolds to more than {_MOST_CHARACTERS} characters; use fewer aliases"
            )
        if "\0" in text:
            # No file, program, header or message can contain it.
            raise ConfigurationError(f"{place}: contains a NUL character; remove it")
        try:
            return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{place}: contains half of a surrogate pair; write the whole character"
            ) from error


def dotted(keys: Keys) -> str:
    """Return a place as text, ``targets[0].url``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _shown(key: str | int) -> str | int:
    return key if isinstance(key, int) or _KEY.fullmatch(key) else "*"


def repeated(value: object, keys: Keys) -> str:
    """Return text or a number as an error repeats it; "" for other values, and for what may be a secret."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    is_secret = not _SECRET_KEYS.isdisjoint(keys) or "://" in str(value)
    return "" if is_secret else one_line(repr(value))


def read(path: Path) -> YamlFile:
    """Read and parse a file of at most 262,144 characters; an empty one is an empty mapping."""
    try:
        # A FIFO would wait for a writer, and a device may be endless.
        with io.TextIOWrapper(files.open_to_read(path), encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}:1: is {not_text(error)}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _MOST_CHARACTERS:
        raise ConfigurationError(f"{path}: has more than {_MOST_CHARACTERS} characters")
    return parse(text, path)


def parse(text: str, path: Path) -> YamlFile:
    import yaml

    file = YamlFile(path)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None:
            file.locate(node)
            data = yaml.SafeLoader("").construct_document(node)
            file.data = {} if data is None else data
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be parsed"
        if error.context == "while scanning a quoted scalar":
            mark, problem = error.context_mark, "the quotation mark is not closed"
        elif remedy := next((text for start, text in _REMEDIES.items() if problem.startswith(start)), None):
            problem = remedy
        elif not problem.startswith("expected "):
            # It may contain names of tags, anchors and aliases. After "expected" there are only PyYAML's own
            # names, as in "expected ']', but got '<scalar>'".
            problem = _QUOTED.sub("...", problem)
        # PyYAML's error contains the line of the file, which may be a secret.
        raise _invalid(path, mark.line + 1 if mark else 1, problem) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _invalid(path, line, f"the character U+{error.character:04X} is not allowed") from error
    except RecursionError as error:
        raise _invalid(path, 1, _TOO_DEEP) from error
    except (ValueError, LookupError, AttributeError) as error:
        # PyYAML's error without a mark, as for !!bool 7, repeats the value, which may be a secret.
        raise _invalid(path, 1, "a value does not fit its tag") from error
    return file


def _invalid(path: Path, line: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{path}:{line}: is not valid YAML: {problem}")
