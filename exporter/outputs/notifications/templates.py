"""The user's templates, in Jinja2's sandbox and with limits of time, memory and length.

The sandbox protects the sender process' data from templates, which have only the variables below. Text from
Azure is always escaped for the format.
"""

import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateRuntimeError, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import escape
from msgspec.structs import asdict

from exporter.config import Templates
from exporter.model.lifecycle import Change, TransitionRecord
from exporter.model.messages import Message
from exporter.model.views import ApprovalView, EventView
from exporter.model.wording import duration, printable, relative, stamp, utc
from exporter.outputs.notifications import words
from exporter.outputs.notifications.facts import Fact, facts
from exporter.outputs.notifications.protocol import Checked
from exporter.outputs.notifications.samples import variants
from exporter.outputs.notifications.styles import STYLES, TITLE, HtmlStyle, Style, cleaned

FILTERS = ("code", "duration", "utc", "relative")
# The variables of templates; docs/messages.md describes each.
NAMES = (
    *("event", "transition", "instance", "vm", "at", "now", "time_left", "severity", "changes", "detail"),
    *("headline", "explanation", "facts"),
)
# Each of these filters, and Jinja2's function ``lipsum``, would output data as markup.
_UNSAFE_FILTERS = ("safe", "urlize", "xmlattr")
_OBJECT = re.compile(r"'(?:exporter\.[\w.]*|__main__)\.(\w+) object'")
# Jinja2's errors for a value that is None, or an empty list.
_GAP = re.compile(r"\bNone\b|NoneType|has no element")
# Unicode's categories Cc and Cs, except line feeds.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MOST_CHARACTERS = 2**20  # of what a template writes
_SAMPLE_URL = "https://exporter.example.com/"


class TemplateError(Exception):
    """A template does not work; the message has the line, the reason and the remedy."""


class Tags(dict[str, str]):
    """The tags of the VM; "" for any other name."""

    def __missing__(self, name: str) -> str:
        return ""


# The fields of the variable ``vm``: facts about this VM, "" where unknown; URLs are safe in every format.
VM_FIELDS = (
    *("resource_group", "subscription_id", "location", "zone", "scale_set", "size", "id", "resource_id"),
    *("portal_url", "exporter_url", "node", "computer_name", "priority", "tags"),
)
Vm = msgspec.defstruct("Vm", VM_FIELDS, frozen=True)
_SHAPES = (EventView, ApprovalView, Change, Vm)
_FIELDS = {shape.__name__: shape.__struct_fields__ for shape in _SHAPES} | {
    "Fact": Fact._fields,
    TransitionRecord.__name__: ("transition", "at", "hook", "run"),
}
_FIELDS_BY_NAME = {"event": EventView.__struct_fields__, "vm": VM_FIELDS}


def variables(message: Message, now: datetime, style: Style, exporter_url: str) -> dict[str, Any]:
    """Return the values of `NAMES` for a message at ``now``; all text is safe in the format.

    ``time_left`` is in whole seconds; times are aware and in the zone of ``now``.
    """
    shown = cleaned(message, style, now.tzinfo or UTC)
    urls = {"portal_url": message.vm.portal_url, "exporter_url": exporter_url}
    vm = {name: text for name, text in asdict(shown.vm).items() if name in VM_FIELDS}
    start = message.event.not_before
    return {
        "event": shown.event,
        "transition": message.transition,
        "instance": shown.instance or None,
        "vm": Vm(id=shown.vm.vm_id, **(vm | urls | {"tags": Tags(shown.vm.tags)})),
        "at": shown.at,
        "now": now,
        "time_left": round(max(0.0, (start - now).total_seconds())) if start else 0,
        "severity": message.severity,
        "changes": shown.changes,
        "detail": shown.detail,
        "headline": style.data(words.headline(message, now)),
        "explanation": words.explanation(shown),
        "facts": facts(shown, now, style, **urls),
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
        )
        environment.filters |= {"code": style.code, "duration": duration, "utc": utc, "relative": _relative}
        for name in _UNSAFE_FILTERS:
            del environment.filters[name]
        del environment.globals["lipsum"]
        try:
            tree = environment.parse(text)
            if problem := next(_unknown(tree), ""):
                raise TemplateError(problem)
            self._compiled = environment.from_string(tree)
        except TemplateSyntaxError as error:
            hint = ""
            if (error.message or "").startswith("No filter named"):
                hint = f"; besides Jinja2's own there are {', '.join(FILTERS)}"
            message = f"{_line(error.lineno)}: {(error.message or 'bad syntax').rstrip('.')}"
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
        except MemoryError:
            raise TemplateError("takes too much memory") from None
        except Exception as error:
            raise TemplateError(_reason(error)) from error
        if len(text) > _MOST_CHARACTERS:
            raise TemplateError(f"writes more than {_MOST_CHARACTERS} characters")
        return text


@lru_cache(maxsize=32)
def _compiled(text: str, style: Style) -> Template:
    return Template(text, style)


def render(key: str, templates: Templates, message: Message, now: datetime, exporter_url: str) -> str:
    """Return the text of the template ``title`` or ``body`` for a message.

    Raises:
        TemplateError: it does not compile, fails, or takes too much memory.
    """
    style = _style(key, templates)
    template = _compiled(getattr(templates, key), style)
    rendered = template.render(variables(message, now, style, exporter_url))
    return printable(" ".join(rendered.split())) if key == "title" else _without_controls(rendered)


def check(key: str, templates: Templates) -> Checked:
    """Compile a template, and render it for messages of every kind."""
    try:
        _compiled(getattr(templates, key), _style(key, templates))
    except TemplateError as error:
        return Checked(_without_urls(str(error)))
    gap = ""
    for case, message in variants():
        try:
            render(key, templates, message, message.at, _SAMPLE_URL)
        except TemplateError as error:
            problem = _without_urls(f"{error}; tried with {case}")
            if not _GAP.search(str(error)):
                return Checked(problem)
            gap = gap or problem
    return Checked(gap=gap)


def _without_urls(message: str) -> str:
    """Return an error of Jinja2, which quotes words of the template, without URLs."""
    return re.sub("'[^']*://[^']*'", "...", message)


def _style(key: str, templates: Templates) -> Style:
    return TITLE if key == "title" else STYLES[templates.format]


def _without_controls(text: str) -> str:
    """Replace control characters except line ends and the joiners of emoji."""
    return _CONTROLS.sub(" ", "\n".join(text.splitlines()))


def _unknown(tree: Any) -> Iterator[str]:
    """Yield unknown names and fields, including those in branches that no sample reaches."""
    # A name that is set in one branch and used after it is undeclared for Jinja2.
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    undeclared = meta.find_undeclared_variables(tree) - set(NAMES) - own
    for name in tree.find_all(nodes.Name):
        if name.name in undeclared:
            yield f"{_line(name.lineno)}: {name.name} is unknown; there are {', '.join(NAMES)}"
    for access in tree.find_all(nodes.Getattr):
        read = getattr(access.node, "name", "")
        fields = _FIELDS_BY_NAME.get(read, ())
        if fields and read not in own and access.attr not in fields:
            yield f"{_line(access.lineno)}: {read}.{access.attr} is unknown; {read} has {', '.join(fields)}"


def _line(number: int) -> str:
    return f"line {number} of the template"


def _reason(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == "<template>"), None)
    message = _OBJECT.sub(_with_fields, str(error)).rstrip(".")
    if not isinstance(error, TemplateRuntimeError) or not message:
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{_line(line)}: {message}" if line else message


def _with_fields(match: re.Match[str]) -> str:
    fields = _FIELDS.get(match[1])
    return f"{match[1]} (which has {', '.join(fields)})" if fields else match[1]


@pass_context
def _relative(context: Context, at: datetime | None) -> str:
    return relative(at, context["now"])


def _shown(value: object) -> object:
    if value is None or isinstance(value, datetime):
        return stamp(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _escaped(value: object) -> object:
    """Escape even if a template disables it: data from Azure is never markup."""
    return escape(_shown(value))
