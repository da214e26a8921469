"""YAML files whose every mistake is told with file, line, key and remedy."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from exporter.config.yamlnodes import MOST_MISTAKES, Keys, construct, dotted
from exporter.errors import ConfigurationError, Mistakes, quoted

T = TypeVar("T")
Words = Mapping[Keys, Mapping[bool, str]]
Locate = Callable[[Keys, str], ConfigurationError]

# PyYAML takes up to a minute for a mebibyte of brackets; nobody writes a tenth of this.
_MOST_CHARACTERS = 256 * 1024
_LISTS = (msgspec.inspect.VarTupleType, msgspec.inspect.ListType)
# Not a single character, escaped or not.
_QUOTED = re.compile(r"(?<= )(['\"])(?!\\?.\1).+\1")
_PATH_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")


class YamlFile:
    """A parsed file: plain data, and the line of every key in it.

    ``mistakes`` are what was found while reading it, ``faulty`` the places of values that `convert` has left
    out, because they do not fit.
    """

    def __init__(self, path: Path, data: Any, lines: dict[Keys, int], mistakes: Mistakes) -> None:
        self.path = path
        self.data = data
        self.mistakes = mistakes
        self.faulty: list[Keys] = []
        self._lines = lines
        # Of each list of which `convert` has left out elements: the numbers of the others in the file.
        self._kept: dict[Keys, list[int]] = {}

    def line(self, keys: Keys) -> int:
        """Return the line, from 1, of a key, or of the nearest thing around it that is in the file."""
        while keys and keys not in self._lines:
            keys = keys[:-1]
        return self._lines.get(keys, 1)

    def error(self, keys: Keys, message: str) -> ConfigurationError:
        """Make the error ``file:line: key: message``; ``keys`` are those of the data that `convert` gave."""
        keys = self.place(keys)
        name = dotted(keys)
        text = f"{f'{name}: ' if name else ''}{message}"
        return ConfigurationError(f"{self.path}:{self.line(keys)}: {printable(text)}")

    def place(self, keys: Keys) -> Keys:
        """Return where a part of the data that `convert` gave stands in the file."""
        found: Keys = ()
        for key in keys:
            kept = self._kept.get(found)
            found = (*found, kept[key] if kept and isinstance(key, int) else key)
        return found

    def leave_out(self, data: Any, keys: Keys) -> None:
        """Remove a faulty value, which stands at ``keys`` in ``data``, from it."""
        for key in keys[:-1]:
            data = data[key]
        place = self.place(keys)
        self.faulty.append(place)
        if isinstance(data, list):
            self._kept.setdefault(place[:-1], list(range(len(data)))).pop(int(keys[-1]))
        del data[keys[-1]]


def printable(text: str) -> str:
    """Replace what would steer the terminal that an error is shown on."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def error_without_file(keys: Keys, message: str) -> ConfigurationError:
    """Make the error ``key: message``, where no file says it."""
    return ConfigurationError(f"{dotted(keys)}: {message}")


def read(path: Path) -> YamlFile:
    """Read and parse a file; an empty one holds an empty mapping.

    Raises:
        ConfigurationError: it cannot be read, is over 262,144 characters long, or is not valid YAML.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}:1: is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _MOST_CHARACTERS:
        raise ConfigurationError(f"{path}: has more than {_MOST_CHARACTERS} characters")
    return parse(text, path)


def parse(text: str, path: Path) -> YamlFile:
    """Parse YAML text; ``path`` is what errors name.

    Raises:
        ConfigurationError: it is not valid YAML.
    """
    import yaml

    lines: dict[Keys, int] = {}
    mistakes = Mistakes()
    try:
        data = construct(text, lines, path, mistakes)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = _without_names(error.problem or error.context or "cannot be parsed")
        raise ConfigurationError(f"{path}:{line}: is not valid YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character U+{error.character:04X} must not stand there"
        raise ConfigurationError(f"{path}:{line}: is not valid YAML: {problem}") from error
    except RecursionError as error:
        problem = "is nested too deeply, or an anchor holds itself"
        raise ConfigurationError(f"{path}:1: is not valid YAML: {problem}") from error
    except (ValueError, LookupError, AttributeError) as error:
        # PyYAML's own, unmarked, for !!bool 7 and the like; its text repeats the value, maybe a secret.
        raise ConfigurationError(f"{path}:1: is not valid YAML: a value does not fit its tag") from error
    return YamlFile(path, {} if data is None else data, lines, mistakes)


def _without_names(problem: str) -> str:
    """Leave out what PyYAML repeats of a file: names of tags, anchors and aliases.

    After "expected" there are PyYAML's own names of things, as in "expected ']', but got '<scalar>'".
    """
    return problem if problem.startswith("expected ") else _QUOTED.sub("...", problem)


def convert(file: YamlFile, kind: type[T], *, words: Words | None = None) -> T:
    """Turn the file's data into a msgspec type.

    A key with nothing behind it counts as not given, as where a section's keys are all commented out.
    ``words`` says of places which words YAML has read as booleans there.

    Raises:
        ConfigurationError: keys are unknown or values do not fit, each with file, line and key.
    """
    mistakes = Mistakes()
    result = convert_sound(file, kind, mistakes, words=words)
    mistakes.check()
    return result


def convert_sound(file: YamlFile, kind: type[T], mistakes: Mistakes, *, words: Words | None = None) -> T:
    """Do as `convert`, but put what is wrong into ``mistakes``, and leave it out.

    Raises:
        ConfigurationError: nothing is left, or there are too many mistakes.
    """
    mistakes.problems += file.mistakes.problems
    data = _given(file.data, msgspec.inspect.type_info(kind), (), words or {})
    while True:
        try:
            return msgspec.convert(data, kind, dec_hook=_decode)
        except msgspec.ValidationError as error:
            keys, missing = _faulty(str(error))
            # What is missing because it was left out has been told.
            if (*file.place(keys), missing) not in file.faulty:
                with mistakes:
                    raise _located(file, kind, (), str(error)) from error
            if not keys or len(mistakes.problems) >= MOST_MISTAKES:
                mistakes.check()
                raise
            file.leave_out(data, keys)


def _faulty(text: str) -> tuple[Keys, str]:
    """Return the place of what cannot be taken as it is, and the required key that it lacks, if any."""
    message, _, place = text.partition(" - at `")
    keys = _keys(place.rstrip("`"))
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    return (*keys, unknown[1]) if unknown else keys, missing[1] if missing else ""


def _given(data: Any, info: msgspec.inspect.Type, keys: Keys, words: Words) -> Any:
    """Leave out the known keys that have no value, and return words back that YAML took."""
    if isinstance(data, dict):
        known = _fields(info)
        return {
            key: _given(value, _inner(info, key), (*keys, key), words) if key in known else value
            for key, value in data.items()
            if value is not None or key not in known
        }
    # A set of YAML's, too, is taken for a list; as one, its elements can be left out.
    if isinstance(data, list | set | tuple) and isinstance(_unwrapped(info), _LISTS):
        item = _inner(info, 0)
        return [_given(value, item, (*keys, index), words) for index, value in enumerate(data)]
    return words.get(keys, {}).get(data, data) if isinstance(data, bool) else data


def _decode(kind: type, value: object) -> object:
    """Decode by the type's own ``parse``; its ValueError becomes the located message."""
    parse_value: Callable[[object], object] = kind.parse  # type: ignore[attr-defined]  # all our types have it
    return parse_value(value)


def _located(file: YamlFile, kind: type, at: Keys, text: str) -> ConfigurationError:
    message, _, place = text.partition(" - at `")
    keys = at + _keys(place.rstrip("`"))
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    if unknown:
        known = _fields(_info_at(kind, keys[len(at) :]))
        return file.error((*keys, unknown[1]), f"unknown key; {_hint(unknown[1], known)}")
    missing = re.fullmatch(r"Object missing required field `(.*)`", message)
    if missing:
        return file.error(keys, f"{missing[1]} is missing; add it")
    wrong = re.fullmatch(r"Invalid enum value '?(.*?)'?", message)
    if wrong:
        choices = _choices(_info_at(kind, keys[len(at) :]))
        if wrong[1] in choices:
            return file.error(keys, f"{wrong[1]} stands in quotes; leave them out")
        return file.error(keys, f"{quoted(wrong[1])} is not possible; {_hint(wrong[1], choices)}")
    return file.error(keys, _plain(message))


def _keys(place: str) -> Keys:
    return tuple(
        int(match[2]) if match[2] else match[1]
        for match in _PATH_PART.finditer(place.removeprefix("$"))
        if match[1] or match[2]
    )


def _plain(message: str) -> str:
    """Return in a reader's words what msgspec says in JSON's."""
    words = {
        "object": "a mapping",
        "array": "a list",
        "str": "text",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "null": "nothing",
    }
    match = re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", message)
    if match is None:
        return message
    wanted = " or ".join(words.get(word, word) for word in match[1].split(" | ") if word != "null")
    # No, off and 7 are names like others, but YAML makes something else of them.
    remedy = "; put it in quotes" if wanted == "text" and match[2] in ("bool", "int", "float") else ""
    return f"must be {wanted}, but is {words.get(match[2], match[2])}{remedy}"


def _hint(wrong: str, known: Sequence[str]) -> str:
    """Return what might have been meant, or what there is."""
    import difflib

    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), folded, 1)
    return f"did you mean {folded[close[0]]}?" if close else f"known here: {', '.join(known)}"


def _info_at(kind: type, keys: Keys) -> msgspec.inspect.Type:
    info: msgspec.inspect.Type = msgspec.inspect.type_info(kind)
    for key in keys:
        info = _inner(info, key)
    return info


def _fields(info: msgspec.inspect.Type) -> list[str]:
    """List the keys that a mapping takes."""
    info = _unwrapped(info)
    return [f.encode_name for f in info.fields] if isinstance(info, msgspec.inspect.StructType) else []


def _choices(info: msgspec.inspect.Type) -> list[str]:
    """List the values that a closed set takes."""
    if isinstance(info, msgspec.inspect.UnionType):
        return [choice for part in info.types for choice in _choices(part)]
    if isinstance(info, msgspec.inspect.LiteralType):
        return [str(value) for value in info.values]
    if isinstance(info, msgspec.inspect.EnumType):
        return [str(member.value) for member in info.cls]
    return ["true", "false"] if isinstance(info, msgspec.inspect.BoolType) else []


def _unwrapped(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(info, msgspec.inspect.UnionType):
        structs = [t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)]
        return structs[0]
    return info


def _inner(info: msgspec.inspect.Type, key: str | int) -> msgspec.inspect.Type:
    info = _unwrapped(info)
    if isinstance(info, msgspec.inspect.StructType):
        return next(field.type for field in info.fields if field.encode_name == key)
    if isinstance(info, _LISTS):
        return info.item_type
    if isinstance(info, msgspec.inspect.DictType):
        return info.value_type
    return info
