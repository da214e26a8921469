"""The user's templates in Jinja2's sandbox; run as a program by `exporter.notifications.templating`."""

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateRuntimeError, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import escape
from msgspec.structs import asdict

from exporter.model.lifecycle import Change, TransitionRecord
from exporter.model.messages import Message
from exporter.model.views import ApprovalView, EventView
from exporter.model.wording import duration, printable, relative, utc
from exporter.notifications import words
from exporter.notifications.styles import STYLES, TITLE, HtmlStyle, Style, cleaned
from exporter.notifications.templating import (
    CPU_SECONDS,
    Answer,
    Outcome,
    Request,
    TemplateError,
)

FILTERS = ("code", "duration", "utc", "relative")
# The variables of templates; docs/notifications.md describes each.
NAMES = (
    "event",
    "transition",
    "instance",
    "vm",
    "at",
    "now",
    "time_left",
    "severity",
    "changes",
    "detail",
    "headline",
    "explanation",
    "facts",
)
# Each of these would output data as markup.
_UNSAFE_FILTERS = ("safe", "urlize", "xmlattr")
_UNSAFE_GLOBALS = ("lipsum",)
_OBJECT = re.compile(r"'(?:exporter\.[\w.]*|__main__)\.(\w+) object'")
_MOST_CHARACTERS = 2**20
_MOST_MEMORY = 192 * 2**20


class Vm(msgspec.Struct, frozen=True):
    """The variable ``vm``: facts about this VM, "" where unknown; URLs are safe in every format."""

    resource_group: str
    subscription_id: str
    location: str
    zone: str
    scale_set: str
    size: str
    id: str
    resource_id: str
    portal_url: str
    exporter_url: str


_SHAPES = (EventView, ApprovalView, TransitionRecord, Change, Vm)
_FIELDS = {shape.__name__: shape.__struct_fields__ for shape in _SHAPES} | {"Fact": words.Fact._fields}
_FIELDS_BY_NAME = {"event": EventView.__struct_fields__, "vm": Vm.__struct_fields__}


def variables(message: Message, now: datetime, style: Style, exporter_url: str) -> dict[str, Any]:
    """Return the values of `NAMES` for a message at ``now``; all text is safe in the format.

    ``time_left`` is in whole seconds; times are aware and in UTC.
    """
    shown = cleaned(message, style)
    urls = {"portal_url": message.vm.portal_url, "exporter_url": exporter_url}
    vm = {name: text for name, text in asdict(shown.vm).items() if name in Vm.__struct_fields__}
    start = message.event.not_before
    return {
        "event": shown.event,
        "transition": message.transition,
        "instance": shown.instance or None,
        "vm": Vm(id=shown.vm.vm_id, **vm, **urls),
        "at": message.at,
        "now": now,
        "time_left": round(max(0.0, (start - now).total_seconds())) if start else 0,
        "severity": message.severity,
        "changes": shown.changes,
        "detail": shown.detail,
        "headline": words.headline(shown, now),
        "explanation": words.explanation(shown),
        "facts": words.facts(shown, now, style, **urls),
    }


class Template:
    """A template, compiled for one format.

    Lines with only a block leave no blank lines. None is rendered as ``unknown``, a time as ``2026-03-04
    22:15:00 UTC``, a list as its items separated by commas.

    Raises:
        TemplateError: its syntax is wrong, or it uses a name, field or filter that does not exist.
    """

    def __init__(self, text: str, style: Style) -> None:
        html = isinstance(style, HtmlStyle)
        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined,
            autoescape=html,
            finalize=_escaped if html else _shown,
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=0,
        )
        environment.filters |= {"code": style.code, "duration": duration, "utc": utc, "relative": _relative}
        for name in _UNSAFE_FILTERS:
            del environment.filters[name]
        for name in _UNSAFE_GLOBALS:
            del environment.globals[name]
        try:
            tree = environment.parse(text)
            problem = next(_unknown(tree), None)
            if problem is not None:
                raise TemplateError(problem)
            self._compiled = environment.from_string(tree)
        except TemplateSyntaxError as error:
            hint = ""
            if (error.message or "").startswith("No filter named"):
                hint = f"; beside Jinja2's own there are {', '.join(FILTERS)}"
            message = f"line {error.lineno} of the template: {(error.message or 'bad syntax').rstrip('.')}"
            raise TemplateError(f"{message}{hint}") from error
        except RecursionError as error:
            raise TemplateError("is nested too deeply") from error

    def render(self, values: dict[str, Any]) -> str:
        """Return the text for these values.

        Raises:
            TemplateError: it fails with these values, or its output is too long.
        """
        try:
            text = self._compiled.render(values).strip()
        except Exception as error:
            raise TemplateError(_reason(error)) from error
        if len(text) > _MOST_CHARACTERS:
            raise TemplateError(f"writes more than {_MOST_CHARACTERS} characters")
        return text


def _unknown(tree: Any) -> Iterator[str]:
    """Yield unknown names, including those in branches that no sample reaches."""
    undeclared = meta.find_undeclared_variables(tree) - set(NAMES)
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    for node in tree.find_all((nodes.Name, nodes.Getattr)):
        where = f"line {node.lineno} of the template"
        if isinstance(node, nodes.Name):
            if node.ctx == "load" and node.name in undeclared:
                yield f"{where}: {node.name!r} does not exist; there are {', '.join(NAMES)}"
            continue
        read = getattr(node.node, "name", "")
        fields = _FIELDS_BY_NAME.get(read, ())
        if fields and read not in own and node.attr not in fields:
            yield f"{where}: {read} has no {node.attr!r}; it has {', '.join(fields)}"


def _reason(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == "<template>"), None)
    message = _OBJECT.sub(_with_fields, str(error)).rstrip(".")
    if not isinstance(error, TemplateRuntimeError) or not message:
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"line {line} of the template: {message}" if line else message


def _with_fields(found: re.Match[str]) -> str:
    fields = _FIELDS.get(found[1])
    return f"{found[1]} (which has {', '.join(fields)})" if fields else found[1]


@pass_context
def _relative(context: Context, at: datetime | None) -> str:
    return relative(at, context["now"])


def _shown(value: object) -> object:
    if value is None or isinstance(value, datetime):
        return utc(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _escaped(value: object) -> object:
    """Escape even if a template disables it: data from Azure is never markup."""
    return escape(_shown(value))


def answer(request: Request) -> Answer:
    """Render a template in this process, without limits of time and memory."""
    style = TITLE if request.key == "title" else STYLES[request.templates.format]
    try:
        template = Template(getattr(request.templates, request.key), style)
    except TemplateError as error:
        return Answer(problem=str(error))
    outcomes = []
    for message, now in request.cases:
        try:
            text = template.render(variables(message, now, style, request.exporter_url))
            outcomes.append(Outcome(printable(" ".join(text.split())) if style is TITLE else text))
        except TemplateError as error:
            outcomes.append(Outcome(problem=str(error)))
    return Answer(outcomes)


def _limit() -> None:
    """Set limits at which the kernel ends this process.

    On Windows, and if that is forbidden, only the exporter's time limit applies.
    """
    if sys.platform != "win32":
        import resource

        seconds = int(sum(os.times()[:2])) + 1 + CPU_SECONDS
        limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: _MOST_MEMORY}
        for kind, most in limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    _limit()
    sys.stdout.buffer.write(msgspec.json.encode(answer(asked)))
