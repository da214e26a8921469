"""Loading of configuration files into typed settings.

`load` reads the exporter's file; flags and environment variables take precedence (see `Overrides`). Mistakes
are found before anything starts; each is a `ConfigurationError` with file, line, key and remedy.
"""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from exporter import files as secret_files
from exporter.config import Config, Overrides, addresses, yamlfile
from exporter.config.addresses import Address
from exporter.config.checks import Fault, faults, unknown_types
from exporter.config.yamlfile import Keys, YamlFile, repeated
from exporter.errors import ConfigurationError, Mistakes, did_you_mean

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

log = logging.getLogger(__name__)

# Not chmod: the service, whose user systemd makes at each start, could not read the file any more.
_MOVE_SECRETS = "write ${NAME} instead, with NAME in the service's environment (mode 0600), or use url_file"

_JSON_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


class Loaded(NamedTuple):
    """A configuration with its file, which names places in errors."""

    config: Config
    file: YamlFile
    urls: Sequence[str] = ()  # those of ``--notify``
    addresses: Mapping[str, Sequence[Address]] = {}  # those that each output sends to, by its name

    def error(self, address: Address, problem: str) -> ConfigurationError:
        if address.keys:
            return self.file.error(address.keys, problem)
        return ConfigurationError(f"{address.place}: {problem}")

    def warn(self) -> None:
        """Log what is doubtful; the caller reports mistakes before it."""
        # It may be a typo, or a type that Azure added.
        for keys, doubt in unknown_types(self.config):
            log.warning("unknown event type", extra={"problem": str(self.file.error(keys, doubt))})
        if addresses.contains_secret(self.config):
            secret_files.warn([self.file.path], _MOVE_SECRETS)
        all_addresses = itertools.chain.from_iterable(self.addresses.values())
        secret_files.warn(address.file for address in all_addresses if address.file is not None)


def load(path: Path | None, overrides: Overrides) -> Config:
    """Return a configuration without the checks of the outputs."""
    mistakes = Mistakes()
    settings, _ = load_parsed(path, overrides, mistakes)
    mistakes.check()
    return settings


def load_parsed(path: Path | None, overrides: Overrides, mistakes: Mistakes) -> tuple[Config, YamlFile]:
    """Return the valid part of the file, with the parsed file; errors are added to ``mistakes``."""
    file = yamlfile.read(path) if path is not None else YamlFile()
    config = convert_sound(file, Config, mistakes)
    add(faults(config), file, mistakes)
    return msgspec.structs.replace(
        config,
        imds=_replace(config.imds, endpoint=overrides.imds_endpoint, poll_interval=overrides.poll_interval),
        instance=_replace(config.instance, name=overrides.instance_name),
        state=_replace(config.state, directory=overrides.state_directory),
    ), file


def _replace(section: S, **given: object) -> S:
    return msgspec.structs.replace(
        section, **{key: value for key, value in given.items() if value is not None}
    )


def add(problems: Iterable[Fault], file: YamlFile, mistakes: Mistakes) -> None:
    """Add faults to ``mistakes``, except at faulty places, whose values are left out of the configuration."""
    for keys, fault in problems:
        if file.is_sound(*keys):
            mistakes.problems += file.error(keys, fault).problems


def convert(file: YamlFile, kind: type[T]) -> T:
    """Return the file's data as a msgspec type, or raise all mistakes as one ConfigurationError."""
    mistakes = Mistakes()
    result = convert_sound(file, kind, mistakes)
    mistakes.check()
    return result


def convert_sound(file: YamlFile, kind: type[T], mistakes: Mistakes) -> T:
    """Return the valid part of the file's data as a msgspec type; add errors to ``mistakes``.

    A faulty key is left out, or empty if it is required. If one value of a list or mapping is faulty, all of
    it is. A key without a value is ignored, such as a section whose keys are all commented out.

    Raises:
        ConfigurationError: no part is valid, or there are too many mistakes.
    """
    converter = _Converter(file, mistakes)
    for keys, line, first in file.repeated:
        converter.add(keys, f"is set twice, first on line {first}; keep one", line)
    result: T = converter.convert(file.data, kind, ())
    if result is _FAULTY:
        mistakes.check()
    return result


_FAULTY = object()
_MOST_MISTAKES = 100  # more would not be read


class _Converter:
    """Converts one value after the other, as msgspec would stop at the first mistake."""

    def __init__(self, file: YamlFile, mistakes: Mistakes) -> None:
        self._file = file
        self._mistakes = mistakes

    def convert(self, data: Any, kind: Any, keys: Keys) -> Any:
        """Return a value of this type, `_FAULTY` if the data are."""
        kind, parse = _plain(kind)
        try:
            if parse:
                return parse(data if isinstance(data, str | int | float) else msgspec.convert(data, str))
            if isinstance(data, dict) and _is_struct(kind):
                return self._struct(data, kind, keys)
            if isinstance(data, dict) and get_origin(kind) is dict:
                _, item = get_args(kind)
                values = {key: self.convert(value, item, (*keys, key)) for key, value in data.items()}
                return _FAULTY if _FAULTY in values.values() else values
            # A YAML set is accepted as a list, too.
            if isinstance(data, list | set | tuple) and (sequence := get_origin(kind)) in (tuple, list):
                item = get_args(kind)[0]
                items = [self.convert(value, item, (*keys, index)) for index, value in enumerate(data)]
                return _FAULTY if _FAULTY in items else sequence(items)
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            self.add(keys, _explained(str(error), kind, data, repeated(data, keys)))
        except ValueError as error:
            self.add(keys, f"{repeated(data, keys)} {error}".lstrip())
        return _FAULTY

    def _struct(self, data: dict[str, Any], kind: Any, keys: Keys) -> Any:
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        values = {}
        for key, value in data.items():
            field, place = fields.get(key), (*keys, key)
            if field is None:
                self.add(place, f"unknown key; {did_you_mean(key, fields)}")
            # Where templates of a target have no keys, those of the section around are used.
            elif value is not None and not (value == {} and field.default is None and _is_struct(field.type)):
                converted = self.convert(value, field.type, place)
                if converted is not _FAULTY:
                    values[field.name] = converted
        for key, field in fields.items():
            if field.required and field.name not in values:
                if data.get(key) is None:
                    self.add((*keys, key), "is missing; add it")
                # A stand-in, as text or as a list, for the checks of the other keys.
                values[field.name] = ""
        return kind(**values)

    def add(self, keys: Keys, message: str, line: int = 0) -> None:
        self._file.faulty.add(keys)
        self._mistakes.problems += self._file.error(keys, message, line).problems
        if len(self._mistakes.problems) >= _MOST_MISTAKES:
            self._mistakes.check()


def _is_struct(kind: Any) -> bool:
    kind, _ = _plain(kind)
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _plain(kind: Any) -> tuple[Any, Callable[[object], object] | None]:
    """Return a type without None, and the function that its values are parsed by; see `values.parsed`."""
    if get_origin(kind) in (Union, UnionType):
        first, *others = [part for part in get_args(kind) if part is not NoneType]
        kind = kind if others else first
    if get_origin(kind) is not Annotated:
        return kind, None
    plain, meta = get_args(kind)
    return plain, meta.extra["parse"]


def _explained(message: str, kind: Any, data: object, shown: str) -> str:
    """Return what msgspec says about a value in the words of this program; ``shown`` is what is repeated."""
    choices = _choices(kind)
    if choices and isinstance(data, str | bool | int | float):
        return f"{shown} is not supported; {did_you_mean(str(data), choices)}".lstrip()
    if unfit := re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", message):
        wanted, got = unfit[1].split(" | "), unfit[2]
        remedy = _remedy(wanted[0], got, kind, data)
        types = " or ".join(_JSON_TYPES.get(word, word) for word in wanted)
        value = f" ({shown})" if shown else ""
        return f"must be {types}, but is {_JSON_TYPES.get(got, got)}{value}{remedy}"
    return message


def _remedy(wanted: str, got: str, kind: Any, data: object) -> str:
    # No, off and 7 are valid names, but not strings in YAML.
    if wanted == "str":
        return "; put it in quotes" if got in ("bool", "int", "float") else "; write a single value"
    if wanted == "array":
        has_keys = get_origin(kind) in (tuple, list) and _is_struct(get_args(kind)[0])
        return "; begin each entry with a hyphen" if has_keys else "; write it like [first, second]"
    if wanted == "object":
        return "; write it like {key: value}"
    unquoted = {"int": "0|[1-9][0-9]*", "bool": "(?i:true|false|yes|no|on|off)"}.get(wanted)
    return "; remove the quotes" if unquoted and re.fullmatch(unquoted, str(data)) else ""


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return sorted(map(str, get_args(kind)))
    return [str(member.value) for member in kind] if issubclass(kind, Enum) else []
