"""The user's templates, rendered in a separate process, which limits their time and memory.

Jinja2's sandbox protects the exporter's data from templates. It does not prevent ``{{ 9 ** (9 ** 9) }}`` from
blocking all threads, nor a string that doubles in a loop from filling the memory. The process has no secrets
in its environment. It takes some 0.2 s of CPU for a title or body.

Before a template is used, it is rendered for samples, which ``notify-test`` also sends.
"""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from unicodedata import category

import msgspec
from msgspec.structs import replace

from exporter.config import Templates
from exporter.config.yamlfile import Locate
from exporter.errors import ConfigurationError, scrubbed
from exporter.model.events import SCHEDULED, STARTED, Target
from exporter.model.lifecycle import ENDINGS, Change, Transition, TransitionRecord
from exporter.model.messages import AnyMessage, Message
from exporter.model.views import EventView
from exporter.model.vm import VirtualMachine
from exporter.notifications.styles import flat

_log = logging.getLogger(__name__)

CPU_SECONDS = 2
# Enough for a slow start on a busy machine.
_SECONDS = 60.0
_KEY = "notifications.templates"
# Jinja2's errors for a value that is None, or an empty list.
_GAP = re.compile(r"\bNone\b|NoneType|has no element")
SAMPLE_ID = "00000000-0000-0000-0000-000000000000"
_DAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_NOTICE = timedelta(minutes=15)


class TemplateError(ConfigurationError):
    """A template does not work; the message has the line, the reason and the remedy."""


class Outcome(msgspec.Struct):
    """The text of a template for a message, or why it failed."""

    text: str = ""
    problem: str = ""


class Request(msgspec.Struct):
    """The template to render, ``title`` or ``body``, and the messages with the times to render them at."""

    key: str
    templates: Templates
    exporter_url: str
    cases: Sequence[tuple[Message, datetime]]


class Answer(msgspec.Struct):
    """An outcome for each case, or why the template does not compile."""

    outcomes: list[Outcome] = []
    problem: str = ""


def check(templates: Templates, locate: Locate) -> None:
    """Compile the templates, and render them for messages of every kind.

    ``locate`` returns the error for a key of the configuration file, with file and line.

    Raises:
        ConfigurationError: the one from ``locate``: the syntax is wrong, a name does not exist, or it fails
            even if all values are set.
    """
    for key in ("title", "body"):
        if getattr(templates, key).strip():
            try:
                _try(key, templates)
            except TemplateError as error:
                raise locate(("notifications", "templates", key), scrubbed(str(error))) from error


def _try(key: str, templates: Templates) -> None:
    """Render all variants; log one warning if only those with missing values fail."""
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
    """The user's template for the title or the body; a failure is logged once."""

    def __init__(self, key: str, templates: Templates, exporter_url: str) -> None:
        self._key = key
        self._templates = templates
        self._exporter_url = exporter_url
        self._exists = bool(getattr(templates, key).strip())
        self._warned = False

    def render(self, message: Message, now: datetime) -> str:
        """Return the text for a message; "" if there is no template, or it fails."""
        if not self._exists:
            return ""
        try:
            (outcome,) = _outcomes(Request(self._key, self._templates, self._exporter_url, [(message, now)]))
        except TemplateError as error:
            outcome = Outcome(problem=str(error))
        if outcome.problem and not self._warned:
            self._warned = True
            _log.warning(
                "template failed; the default text is used",
                extra={
                    "key": f"{_KEY}.{self._key}",
                    "reason": flat(outcome.problem),
                    "event_id": message.event.id,
                    "transition": message.transition.value,
                },
            )
        return outcome.text if self._key == "title" else _without_controls(outcome.text)


def _without_controls(text: str) -> str:
    """Replace control characters except line ends and the joiners of emoji."""
    return "\n".join(
        "".join(" " if category(letter) in ("Cc", "Cs") else letter for letter in line)
        for line in text.splitlines()
    )


def _outcomes(request: Request) -> list[Outcome]:
    """Return the outcome for each message.

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


def samples(vm: VirtualMachine, now: datetime, event_type: str = "Reboot") -> tuple[Message, ...]:
    """Return one message of each transition, at ``now``, about this VM; the caller fills in ``target``."""
    return tuple(_sample(transition, vm, now, event_type) for transition in Transition)


def variants() -> Iterator[tuple[str, Message]]:
    """Return messages that cover all cases for a template, each with a description of its case."""
    for sample in (*samples(VirtualMachine(name="vm_0"), _DAY), *samples(VirtualMachine(), _DAY)):
        event = sample.event
        what = f"transition {sample.transition}{'' if sample.instance else ', instance not known'}"
        yield what, sample
        unknown = replace(event, not_before=None, duration_seconds=None, description="")
        yield f"{what}, no NotBefore and no duration", replace(sample, event=unknown)
        odd = replace(event, resources=(), source="", type="Evacuate")
        yield f"{what}, no resources, no source and an unknown type", replace(sample, event=odd)
        other = replace(event, target=Target.OTHER, resources=("vm_1", "vm_2"))
        yield f"{what}, an event of other VMs", replace(sample, event=other)
        yield f"{what}, every field changed", replace(sample, changes=tuple(_changes(event, _DAY)))


def is_sample(message: AnyMessage) -> bool:
    """Return whether a message is a sample."""
    return isinstance(message, Message) and message.event.id == SAMPLE_ID


def _sample(transition: Transition, vm: VirtualMachine, now: datetime, event_type: str) -> Message:
    instance = vm.name or None
    ended = transition in ENDINGS
    begun = transition in (Transition.STARTED, Transition.COMPLETED)
    started = now - timedelta(minutes=10 if ended else 0) if begun else None
    event = EventView(
        id=SAMPLE_ID,
        ids=(SAMPLE_ID,),
        type=event_type,
        source="notify-test",
        status=STARTED if begun else SCHEDULED,
        target=Target.SELF,
        resources=(instance,) if instance else (),
        description="This is a test message.",
        not_before=None if begun else now + _NOTICE,
        duration_seconds=9,
        first_seen=(started or now) - (_NOTICE if begun or ended else timedelta(0)),
        started=started,
        ended=now if ended else None,
        outcome=transition if ended else None,
        transitions=(TransitionRecord(transition, now),),
    )
    changes = tuple(_changes(event, now))[:1] if transition is Transition.UPDATED else ()
    detail = "hook sample failed: exit status 1" if transition is Transition.HOOK_FAILED else ""
    number = list(Transition).index(transition) + 1
    incident = f"{SAMPLE_ID}/{instance or 'test'}"
    return Message("", SAMPLE_ID, number, transition, now, instance, event, changes, detail, vm, incident)


def _changes(event: EventView, now: datetime) -> Iterator[Change]:
    yield Change("not_before", now + timedelta(minutes=10), event.not_before)
    yield Change("duration_seconds", None, event.duration_seconds)
    yield Change("resources", ("vm_1",), event.resources)
    yield Change("description", "", event.description)
