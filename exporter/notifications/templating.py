"""The user's templates, filled in by a process of its own, because nothing else bounds what they take.

Jinja2's sandbox keeps a template from the exporter's data. It does not keep ``{{ 9 ** (9 ** 9) }}`` from
holding up all threads, nor a string that doubles in a loop from filling the memory. The process has no secret
in its environment. Only users with templates pay for it, some 0.2 s of CPU for a title or body.
"""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from unicodedata import category

import msgspec

from exporter.config import Templates
from exporter.config.yamlfile import Locate
from exporter.errors import ConfigurationError, scrubbed
from exporter.model.messages import Message
from exporter.notifications.samples import variants
from exporter.notifications.styles import flat

_log = logging.getLogger(__name__)

CPU_SECONDS = 2
# For a process that starts slowly, on a machine that is busy.
_SECONDS = 60.0
_KEY = "notifications.templates"
# How Jinja2 says that a value is None, or a list empty.
_GAP = re.compile(r"\bNone\b|NoneType|has no element")


class TemplateError(ConfigurationError):
    """A template does not work; the message says in which of its lines, why, and what would."""


class Outcome(msgspec.Struct):
    """What a template made of a message, or why it failed."""

    text: str = ""
    problem: str = ""


class Request(msgspec.Struct):
    """Which template is to be filled in, ``title`` or ``body``, and for which messages as of which times."""

    key: str
    templates: Templates
    exporter_url: str
    cases: Sequence[tuple[Message, datetime]]


class Answer(msgspec.Struct):
    """An outcome for each case, or why the template does not even compile."""

    outcomes: list[Outcome] = []
    problem: str = ""


def check(templates: Templates, locate: Locate) -> None:
    """Compile the templates, and try them on messages of every kind.

    ``locate`` makes the error for a key of the configuration file, with file and line.

    Raises:
        ConfigurationError: what ``locate`` made: the syntax is wrong, a name does not exist, or it fails
            with everything that it may use there.
    """
    for key in ("title", "body"):
        if getattr(templates, key).strip():
            try:
                _try(key, templates)
            except TemplateError as error:
                raise locate(("notifications", "templates", key), scrubbed(str(error))) from error


def _try(key: str, templates: Templates) -> None:
    """Render all variants; what only fails where Azure leaves something out is warned of, once."""
    cases = list(variants())
    tried = [(message, message.at) for _, message in cases]
    outcomes = _outcomes(Request(key, templates, "https://exporter.example.com/", tried))
    problems = [
        f"{outcome.problem}; tried with {case}"
        for (case, _), outcome in zip(cases, outcomes, strict=True)
        if outcome.problem
    ]
    if wrong := next((one for one in problems if not _GAP.search(one)), None):
        raise TemplateError(wrong)
    if problems:
        remedy = "such messages go out as the program writes them; put {% if %} around what may be missing"
        _log.warning(
            "a template fails where Azure leaves something out",
            extra={"key": f"{_KEY}.{key}", "reason": scrubbed(problems[0]), "remedy": remedy},
        )


class UserTemplate:
    """The title or the body, as the user's template writes it; a failure is logged once."""

    def __init__(self, key: str, templates: Templates, exporter_url: str) -> None:
        self._key = key
        self._templates = templates
        self._exporter_url = exporter_url
        self._exists = bool(getattr(templates, key).strip())
        self._warned = False

    def render(self, message: Message, now: datetime) -> str:
        """Return what the template makes of a message; "" where there is none, or it fails."""
        if not self._exists:
            return ""
        try:
            (outcome,) = _outcomes(Request(self._key, self._templates, self._exporter_url, [(message, now)]))
        except TemplateError as error:
            outcome = Outcome(problem=str(error))
        if outcome.problem and not self._warned:
            self._warned = True
            _log.warning(
                "a template fails; messages go out as the program writes them",
                extra={
                    "key": f"{_KEY}.{self._key}",
                    "reason": flat(outcome.problem),
                    "event_id": message.event.id,
                    "transition": message.transition.value,
                },
            )
        return outcome.text if self._key == "title" else _without_controls(outcome.text)


def _without_controls(text: str) -> str:
    """Keep the template's own lines and, of what cannot be seen, what its emoji are joined with."""
    return "\n".join(
        "".join(" " if category(letter) in ("Cc", "Cs") else letter for letter in line)
        for line in text.splitlines()
    )


def _outcomes(request: Request) -> list[Outcome]:
    """Return what a template makes of each message.

    Raises:
        TemplateError: it does not compile, or takes more than 2 s of CPU or too much memory.
    """
    try:
        found = _filled_in(request)
    except (subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise TemplateError(f"takes more than {CPU_SECONDS} s, or too much memory") from error
    except OSError as error:
        raise TemplateError(f"cannot be tried, as no process can be started: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise TemplateError("cannot be filled in with half a character") from error
    if found.problem:
        raise TemplateError(found.problem)
    return found.outcomes


def _filled_in(request: Request) -> Answer:
    done = subprocess.run(  # noqa: S603  # this program itself
        [sys.executable or "", "-P", "-m", "exporter.notifications.engine"],
        env=_environment(),
        input=msgspec.json.encode(request),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Answer)


def _environment() -> dict[str, str]:
    needed = {name: value for name, value in os.environ.items() if name.upper() == "SYSTEMROOT"}
    return needed | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
