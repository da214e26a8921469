"""Loading of configuration files into typed settings.

`load` reads the exporter's file; flags and environment variables take precedence (see `Overrides`). Mistakes
are found before anything starts; each is a `ConfigurationError` with file, line, key and remedy.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from exporter import files as secret_files
from exporter.config import Config, Mode, Overrides, addresses, yamlfile
from exporter.config.addresses import Address
from exporter.config.checks import fault_of_name, findings, unknown_types
from exporter.config.yamlfile import MOST_MISTAKES, Keys, Locate, YamlFile
from exporter.errors import ConfigurationError, Mistakes, quoted

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

log = logging.getLogger(__name__)

_PATH_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
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
    """A configuration with the addresses of targets; ``urls`` are those of ``--notify``.

    ``locate`` returns the error for a key, with its place in the file.
    """

    config: Config
    locate: Locate
    addresses: Sequence[Address]
    urls: Sequence[str]

    def error(self, address: Address, problem: str) -> ConfigurationError:
        if address.keys:
            return self.locate(address.keys, problem)
        return ConfigurationError(f"{address.place}: {problem}")


def read(
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    mistakes: Mistakes,
) -> Loaded:
    """Load a configuration with its targets, and log warnings about possible mistakes.

    Errors are added to ``mistakes``, and the faulty parts left out.

    Raises:
        ConfigurationError: no part of the file is valid.
    """
    settings, locate = load_located(file, overrides, mistakes)
    found = addresses.resolve(settings.notifications, urls, locate, environ, mistakes)
    warn(settings, locate)
    secret_files.warn(addresses.secret_files(settings.notifications, file))
    return Loaded(settings, locate, found, urls)


def load(path: Path | None, overrides: Overrides) -> Config:
    mistakes = Mistakes()
    settings, _ = load_located(path, overrides, mistakes)
    mistakes.check()
    return settings


def load_located(path: Path | None, overrides: Overrides, mistakes: Mistakes) -> tuple[Config, Locate]:
    """Return the valid part of the file, and a function that returns the error for a key.

    Errors are added to ``mistakes``.

    Raises:
        ConfigurationError: no part of the file is valid.
    """
    config, locate = Config(), yamlfile.error_without_file
    if path is not None:
        file = yamlfile.read(path)
        config, locate = _checked(file, mistakes), file.error
    if fault := fault_of_name(overrides.instance_name or ""):
        raise ConfigurationError(f"instance.name: {fault}")
    return msgspec.structs.replace(
        config,
        imds=_replace(config.imds, endpoint=overrides.imds_endpoint, poll_interval=overrides.poll_interval),
        instance=_replace(config.instance, name=overrides.instance_name),
        state=_replace(config.state, directory=overrides.state_directory),
    ), locate


def warn(config: Config, locate: Locate) -> None:
    """Log a warning for each unknown event type: it may be a typo, or one that Azure added."""
    for keys, doubt in unknown_types(config):
        log.warning("unknown event type", extra={"problem": str(locate(keys, doubt))})


def _replace(section: S, **given: object) -> S:
    return msgspec.structs.replace(
        section, **{key: value for key, value in given.items() if value is not None}
    )


def _checked(file: YamlFile, mistakes: Mistakes) -> Config:
    approval = file.data.get("approval") if isinstance(file.data, dict) else None
    if isinstance(approval, dict) and isinstance(approval.get("mode"), bool):
        # In YAML 1.1 off and on are booleans.
        approval["mode"] = (Mode.ON if approval["mode"] else Mode.OFF).value
    config = convert_sound(file, Config, mistakes)
    for keys, fault in findings(config):
        if not _follows(file.place(keys), file.faulty):
            mistakes.problems += file.error(keys, fault).problems
    return config


def _follows(place: Keys, faulty: Sequence[Keys]) -> bool:
    """Return whether a finding may exist only because a faulty value was left out or replaced."""
    if "require_hooks" in place and any(
        _may_name(keys, ("hooks",)) or keys[0] == "kubernetes" for keys in faulty
    ):
        return True
    targets, tags = ("notifications", "targets"), ("notifications", "apprise_config")
    if "targets" in place[2:-1] and any(_may_name(keys, targets) for keys in faulty):
        return True
    if place[-1:] == ("tag",) and tags in faulty:
        return True
    return any(keys[: len(place)] == place[: len(keys)] for keys in faulty)


def _may_name(faulty: Keys, items: Keys) -> bool:
    """Return whether a faulty value may contain the name of one of these items."""
    return faulty[: len(items)] == items and (len(faulty) <= len(items) + 1 or faulty[-1] == "name")


def convert(file: YamlFile, kind: type[T]) -> T:
    """Return the file's data as a msgspec type, or raise all mistakes as one ConfigurationError."""
    mistakes = Mistakes()
    result = convert_sound(file, kind, mistakes)
    mistakes.check()
    return result


def convert_sound(file: YamlFile, kind: type[T], mistakes: Mistakes) -> T:
    """Return the valid part of the file's data as a msgspec type; add errors to ``mistakes``.

    A key without a value is ignored, such as a section whose keys are all commented out.

    Raises:
        ConfigurationError: no part is valid, or there are too many mistakes.
    """
    mistakes.problems += file.mistakes.problems
    info = inspect.type_info(kind)
    data = _given(file.data, info)
    while True:
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `")
            keys, missing = _keys(path.rstrip("`")), ""
            value = reduce(getitem, keys, data)
            if isinstance(value, ValueError):
                message = str(value)
            else:
                keys, missing, message = _explained(message, keys, info)
            # A value that is missing because it was left out has been reported.
            if (*file.place(keys), missing) not in file.faulty:
                mistakes.problems += file.error(keys, message).problems
            if not (keys or missing) or len(mistakes.problems) >= MOST_MISTAKES:
                mistakes.check()
            file.leave_out(data, (*keys, missing) if missing else keys, _required(info, keys, missing))


def _required(info: inspect.Type, keys: Keys, missing: str) -> object:
    """Return a valid value for a required key, so that the rest of its mapping is checked, or None."""
    *parents, key = (*keys, missing) if missing else keys
    for parent in parents:
        info = _inner(info, parent)
    fields = _without_none(info)
    if not isinstance(fields, inspect.StructType):
        return None
    kind = next((one.type for one in fields.fields if one.encode_name == key and one.required), None)
    if kind is None:
        return None
    plain = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(plain, inspect.FloatType | inspect.IntType):
        return 0
    return next(iter(_choices(kind)), "") if not isinstance(kind, inspect.VarTupleType) else ("",)


def _keys(path: str) -> Keys:
    """Return the keys of a msgspec path such as ``$.targets[0].url``."""
    found = _PATH_PART.finditer(path.removeprefix("$"))
    return tuple(int(part[2]) if part[2] else part[1] for part in found if part[1] or part[2])


def _given(data: Any, info: inspect.Type) -> Any:
    """Return the data with values parsed, and without known keys that have no value.

    In place of a value that cannot be parsed is its ValueError, which no type accepts.
    """
    info = _without_none(info)
    if isinstance(info, inspect.Metadata):
        try:
            return (info.extra or {})["parse"](data)
        except ValueError as error:
            return error
    if isinstance(data, dict):
        known = _fields(info)
        return {
            key: _given(value, known[key]) if key in known else value
            for key, value in data.items()
            if value is not None or key not in known
        }
    items = getattr(info, "item_type", None)
    # A YAML set is accepted as a list, too; in a list, elements can be left out.
    if isinstance(data, list | set | tuple) and items:
        return [_given(value, items) for value in data]
    return data


def _explained(message: str, keys: Keys, info: inspect.Type) -> tuple[Keys, str, str]:
    """Return the place of what msgspec rejects, the missing key or "", and the message."""
    for key in keys:
        info = _inner(info, key)
    # A key may have several lines.
    if unknown := re.fullmatch(r"(?s)Object contains unknown field `(.*)`", message):
        return (*keys, unknown[1]), "", f"unknown key; {_hint(unknown[1], list(_fields(info)))}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        return keys, missing[1], f"{missing[1]} is missing; add it"
    if wrong := re.fullmatch(r"Invalid enum value '?(.*?)'?", message):
        choices = _choices(info)
        if wrong[1] in choices:
            return keys, "", f"{wrong[1]} is in quotes; remove them"
        return keys, "", f"{quoted(wrong[1])} is not supported; {_hint(wrong[1], choices)}"
    if unfit := re.fullmatch(r"Expected `(.+?)`, got `(.+?)`", message):
        wanted, got = [word for word in unfit[1].split(" | ") if word != "null"], unfit[2]
        # No, off and 7 are valid names, but not strings in YAML.
        remedy = "; put it in quotes" if wanted == ["str"] and got in ("bool", "int", "float") else ""
        shown = " or ".join(_JSON_TYPES.get(word, word) for word in wanted)
        return keys, "", f"must be {shown}, but is {_JSON_TYPES.get(got, got)}{remedy}"
    return keys, "", message


def _hint(wrong: str, known: Sequence[str]) -> str:
    """Return the key or word that may be meant, or all valid ones."""
    from difflib import get_close_matches

    folded = {name.lower(): name for name in known}
    close = get_close_matches(wrong.lower(), folded, 1)
    return f"did you mean {folded[close[0]]}?" if close else f"must be one of: {', '.join(known)}"


def _fields(info: inspect.Type) -> dict[str, inspect.Type]:
    info = _without_none(info)
    return {f.encode_name: f.type for f in info.fields} if isinstance(info, inspect.StructType) else {}


def _inner(info: inspect.Type, key: str | int) -> inspect.Type:
    """Return the type of the value at a key of a mapping or list."""
    info = _without_none(info)
    if isinstance(info, inspect.StructType):
        return _fields(info)[str(key)]
    if isinstance(info, inspect.DictType):
        return info.value_type
    return info.item_type if isinstance(info, inspect.VarTupleType | inspect.ListType) else info


def _choices(info: inspect.Type) -> list[str]:
    if isinstance(info, inspect.UnionType):
        return [choice for part in info.types for choice in _choices(part)]
    if isinstance(info, inspect.LiteralType):
        return [str(value) for value in info.values]
    if isinstance(info, inspect.EnumType):
        return [str(member.value) for member in info.cls]
    return ["true", "false"] if isinstance(info, inspect.BoolType) else []


def _without_none(info: inspect.Type) -> inspect.Type:
    if isinstance(info, inspect.UnionType):
        return next(part for part in info.types if not isinstance(part, inspect.NoneType))
    return info
