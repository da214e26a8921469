"""Renders the user's templates in a process of its own, because nothing else bounds what they take.

Jinja2's sandbox keeps a template from the exporter's data. It does not keep ``{{ 9 ** (9 ** 9) }}`` from
holding up all threads, nor a string that doubles in a loop from filling the memory. The process has no secret
in its environment. Only users with templates pay for it, some 0.2 s of CPU for a title or body.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec

from exporter.config import Templates
from exporter.model.messages import Message
from exporter.model.wording import printable
from exporter.notifications.engine import Engine, TemplateError
from exporter.notifications.styles import TitleStyle, style

CPU_SECONDS = 2
MOST_CHARACTERS = 2**20
_MOST_MEMORY = 192 * 2**20
# For a process that starts slowly, on a machine that is busy.
_SECONDS = 60.0

Case = tuple[Message, datetime]


class Outcome(msgspec.Struct):
    """What a template made of a message, or why it failed."""

    text: str = ""
    problem: str = ""


class Request(msgspec.Struct):
    """Which template is to be filled in, and for what."""

    key: str
    templates: Templates
    exporter_url: str
    cases: Sequence[Case]


class Answer(msgspec.Struct):
    """An outcome for each case, or why the template does not even compile."""

    outcomes: list[Outcome] = []
    problem: str = ""


def render(key: str, templates: Templates, exporter_url: str, cases: Sequence[Case]) -> list[Outcome]:
    """Fill in the template at ``key``, ``title`` or ``body``, for each message as of its time.

    Raises:
        TemplateError: it does not compile, or takes more than 2 s of CPU or too much memory.
    """
    request = Request(key, templates, exporter_url, cases)
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
        [sys.executable or "", "-P", "-m", __name__],
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


def answer(request: Request) -> Answer:
    """Fill in a template, in this process and without limits."""
    from exporter.notifications.context import variables

    of_title = request.key == "title"
    chosen = TitleStyle() if of_title else style(request.templates.format)
    engine = Engine(chosen, html=not of_title and request.templates.format == "html")
    try:
        template = engine.compile(getattr(request.templates, request.key))
    except TemplateError as error:
        return Answer(problem=str(error))
    outcomes = []
    for message, now in request.cases:
        try:
            text = template.render(variables(message, now, chosen, request.exporter_url))
            if len(text) > MOST_CHARACTERS:
                raise TemplateError(f"writes more than {MOST_CHARACTERS} characters")  # noqa: TRY301
            outcomes.append(Outcome(printable(" ".join(text.split())) if of_title else text))
        except TemplateError as error:
            outcomes.append(Outcome(problem=str(error)))
    return Answer(outcomes)


def _limit() -> None:
    """Set limits at which the kernel ends this process.

    On Windows, and where that is forbidden, the time limit of the exporter remains.
    """
    if sys.platform != "win32":
        import resource

        seconds = int(sum(os.times()[:2])) + 1 + CPU_SECONDS
        limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: _MOST_MEMORY}
        for kind, most in limits.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (most, most))


def _main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    import jinja2.sandbox  # noqa: F401  # which may take more than the template itself

    _limit()
    found = answer(request)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main()
