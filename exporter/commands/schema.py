"""The JSON schema of the configuration file, for editors and for the chart."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

import exporter
from exporter.config import Config
from exporter.timefmt import DURATION_PATTERN, format_duration

_DRAFT = "http://json-schema.org/draft-07/schema#"  # draft 7, which Helm and editors read
# A line of the sample: a key, in a list or not, and a comment. Sections and their keys are commented out, and
# entries in addition to those twice.
_KEY = re.compile(r"#(?P<indent>(?:  )*)(?P<item>- )?(?P<key>[a-z_]+):(?:.*?\s# (?P<text>.*))?")
# Of `match`, the sample has the keys in one place.
_MATCH_KEY = re.compile(r"#   (?P<key>[a-z_]+): .*?\s# (?P<text>.*)")

Place = tuple[str, ...]


def schema() -> dict[str, Any]:
    """Return the schema, with the comments of the sample configuration as descriptions."""
    _, definitions = msgspec.json.schema_components([Config], ref_template="#/definitions/{name}")
    for definition in definitions.values():
        definition.pop("description", None)
        if "properties" in definition:
            definition["additionalProperties"] = False
            for key, value in definition["properties"].items():
                definition["properties"][key] = _property(value, required=key in definition["required"])
    for place, text in _comments().items():
        kind, key = _owner(place)
        definitions[kind]["properties"][key].setdefault("description", text)
    return {"$schema": _DRAFT, "$ref": "#/definitions/Config", "definitions": definitions}


def written() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def _property(value: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Return the schema of a key; one that is not required may be without a value."""
    default = value.pop("default", None)
    choices = [_choice(part) for part in value.get("anyOf", [value]) if "enum" not in value]
    choices = choices or [{"enum": value["enum"]}]
    if not required and {"type": "null"} not in choices:
        choices.append({"type": "null"})
    # Where msgspec puts it depends on its version.
    choices.sort(key=lambda choice: choice == {"type": "null"})
    merged: dict[str, Any] = {"anyOf": choices} if len(choices) > 1 else choices[0]
    # Defaults of sections are those of their keys.
    if default is not None and not isinstance(default, dict):
        written = _written(default, choices[0])
        if written is not None:
            merged["default"] = written
    return merged


def _choice(value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what is written; msgspec's is that of the result."""
    if "items" in value:
        return value | {"items": _choice(value["items"])}
    if "pattern" in value:
        return value | {"type": ["string", "integer"] if "maximum" in value else "string"}
    return value


def _written(default: Any, value: Mapping[str, Any]) -> Any:
    """Return a default as it is written in the file; None if the value stands for something else there."""
    if isinstance(default, list | tuple):
        return [_written(item, value["items"]) for item in default]
    if value.get("pattern") == DURATION_PATTERN:
        return format_duration(default)
    return default if "pattern" not in value else None


def _comments() -> dict[Place, str]:
    """Return the comments of the sample configuration by the keys that they are about."""
    comments: dict[Place, str] = {}
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in re.sub("^#    #", "#    ", _sample(), flags=re.MULTILINE).splitlines():
        if key := _KEY.fullmatch(line):
            depth = len(key["indent"]) + len(key["item"] or "")
            parents = [*(parent for parent in parents if parent[0] < depth), (depth, key["key"])]
            if text := key["text"] or (" ".join(above) if depth == 0 else ""):
                comments.setdefault(tuple(name for _, name in parents), text)
        elif key := _MATCH_KEY.fullmatch(line):
            comments["in_service", "match", key["key"]] = key["text"]
        elif comments and (more := re.fullmatch("# {9,}# (.*)", line)):
            comments[next(reversed(comments))] += f" {more[1]}"
        above = [*above, line[2:]] if re.match("# [^ ]", line) else []
    return comments


def _sample() -> str:
    package = Path(exporter.__file__).parent
    folders = (package / "assets", package.parent)
    return next(
        path for folder in folders if (path := folder / "deploy" / "exporter.yml").exists()
    ).read_text()


def _owner(place: Place) -> tuple[str, str]:
    """Return the name of the type that has the key at a place, and the key."""
    kind: Any = Config
    for key in place[:-1]:
        field = next(field for field in msgspec.structs.fields(kind) if field.encode_name == key)
        kind = next(_structs(field.type))
    return kind.__name__, place[-1]


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs(part)
