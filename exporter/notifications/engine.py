"""Jinja2, kept in its sandbox, for messages; imported only once an `Engine` is made."""

import re
import traceback
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from exporter.errors import ConfigurationError
from exporter.model.lifecycle import Change, TransitionRecord
from exporter.model.views import ApprovalView, EventView
from exporter.model.wording import duration, relative, utc
from exporter.notifications.context import NAMES, Vm
from exporter.notifications.styles import Style
from exporter.notifications.words import Fact

FILTERS = ("code", "duration", "utc", "relative")
# Each of these would let data through as markup.
_UNSAFE_FILTERS = ("safe", "urlize", "xmlattr")
_OBJECT = re.compile(r"'exporter\.[\w.]*\.(\w+) object'")
_SHAPES = (EventView, ApprovalView, TransitionRecord, Change, Vm)
_FIELDS = {shape.__name__: shape.__struct_fields__ for shape in _SHAPES} | {"Fact": Fact._fields}
_VARIABLES = {"event": EventView.__struct_fields__, "vm": Vm.__struct_fields__}
_UNSAFE_GLOBALS = ("lipsum",)


class TemplateError(ConfigurationError):
    """A template does not work; the message says in which of its lines, why, and what would."""


class Engine:
    """Compiles and renders the templates of one format.

    Blocks' own lines leave no blank lines behind. None reads ``unknown``, a time ``2026-03-04 22:15:00
    UTC``, a list its items with commas between them.
    """

    def __init__(self, style: Style, *, html: bool) -> None:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined,
            autoescape=html,
            finalize=_escaped if html else _shown,
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=0,
        )
        environment.filters |= {
            "code": style.code,
            "duration": duration,
            "utc": utc,
            "relative": _relative_filter(),
        }
        for name in _UNSAFE_FILTERS:
            del environment.filters[name]
        for name in _UNSAFE_GLOBALS:
            del environment.globals[name]
        self._environment = environment

    def compile(self, text: str) -> "Template":
        """Compile a template.

        Raises:
            TemplateError: its syntax is wrong, or it uses a name, field or filter that does not exist.
        """
        from jinja2 import TemplateSyntaxError

        try:
            tree = self._environment.parse(text)
            problem = next(self._unknown(tree), None)
            if problem is not None:
                raise TemplateError(problem)
            return Template(self._environment.from_string(tree))
        except TemplateSyntaxError as error:
            hint = ""
            if (error.message or "").startswith("No filter named"):
                hint = f"; beside Jinja2's own there are {', '.join(FILTERS)}"
            message = f"line {error.lineno} of the template: {(error.message or 'bad syntax').rstrip('.')}"
            raise TemplateError(f"{message}{hint}") from error
        except RecursionError as error:
            raise TemplateError("is nested too deeply") from error

    @staticmethod
    def _unknown(tree: Any) -> Iterator[str]:
        """Find what no sample may ever reach: wrong names in branches that are seldom taken."""
        from jinja2 import meta, nodes

        undeclared = meta.find_undeclared_variables(tree) - set(NAMES)
        own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        for node in tree.find_all((nodes.Name, nodes.Getattr)):
            where = f"line {node.lineno} of the template"
            if isinstance(node, nodes.Name):
                if node.ctx == "load" and node.name in undeclared:
                    yield f"{where}: {node.name!r} does not exist; there are {', '.join(NAMES)}"
                continue
            read = getattr(node.node, "name", "")
            fields = _VARIABLES.get(read, ())
            if fields and read not in own and node.attr not in fields:
                yield f"{where}: {read} has no {node.attr!r}; it has {', '.join(fields)}"


class Template:
    """A compiled template."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def render(self, variables: dict[str, Any]) -> str:
        """Fill it in.

        Raises:
            TemplateError: it fails with these values.
        """
        try:
            rendered: str = self._compiled.render(variables)
        except Exception as error:
            raise TemplateError(_reason(error)) from error
        return rendered.strip()


def _reason(error: Exception) -> str:
    from jinja2 import TemplateRuntimeError

    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == "<template>"), None)
    message = _OBJECT.sub(_with_fields, str(error)).rstrip(".")
    if not isinstance(error, TemplateRuntimeError) or not message:
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"line {line} of the template: {message}" if line else message


def _with_fields(found: re.Match[str]) -> str:
    fields = _FIELDS.get(found[1])
    return f"{found[1]} (which has {', '.join(fields)})" if fields else found[1]


def _relative_filter() -> Any:
    from jinja2 import pass_context

    @pass_context
    def from_now(context: Any, at: datetime | None) -> str:
        return relative(at, context["now"])

    return from_now


def _shown(value: object) -> object:
    if value is None or isinstance(value, datetime):
        return utc(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _escaped(value: object) -> object:
    """Escape even where a template switches that off: what Azure sends is never markup."""
    from markupsafe import escape

    return escape(_shown(value))
