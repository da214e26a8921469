"""The messages between the exporter, its sender process and the children of that: lines of JSON.

Each line is a number and the content; answers have the number of their request.
"""

import sys
from collections.abc import Callable
from typing import IO, Any

import msgspec

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Delivery
from exporter.timefmt import UtcTime

# The first argument with which this program runs as the sender process.
COMMAND = "sender-process"
LONGEST_LINE = 64 * 2**20


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """Render a message at ``now`` and send it.

    ``stands_for`` are transition and time of earlier messages that are left out. ``failed`` is whether
    sending has failed before, ``hangs`` whether the last attempt was not answered. ``services`` are those
    behind the target that have the message already. ``marker`` begins the title. ``timezone`` is that of
    times in the message. ``storage`` is Apprise's directory.
    """

    address: Address
    message: AnyMessage
    now: UtcTime
    templates: Templates = Templates()
    exporter_url: str = ""
    timezone: str = "UTC"
    storage: str = ""
    marker: str = ""
    stands_for: tuple[tuple[str, UtcTime], ...] = ()
    failed: bool = False
    hangs: bool = False
    traceparent: str = ""
    services: tuple[str, ...] = ()


class CheckTarget(msgspec.Struct, frozen=True, tag="target"):
    """Find out whether Apprise accepts an address."""

    address: Address


class CheckTemplate(msgspec.Struct, frozen=True, tag="template"):
    """Compile a template, ``title`` or ``body``, and render it for samples."""

    key: str
    templates: Templates


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process accepts requests."""


class Rendering(msgspec.Struct, frozen=True, tag="rendering"):
    """The user's template, ``title`` or ``body``, is being used; only a child announces it."""

    key: str


class Sending(msgspec.Struct, frozen=True, tag="sending"):
    """From here on the message of this request may arrive."""


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """One of several services behind a target has the message."""

    service: str


class Checked(msgspec.Struct, frozen=True, omit_defaults=True, tag="checked"):
    """The result of a check: ``problem`` is what is wrong, with the remedy.

    ``gap`` is why a template fails if Azure leaves something out. ``services`` is the number of services
    behind an address, and ``incidents`` whether any of them knows incidents. ``not_taken`` is the number of
    those in its Apprise file that Apprise does not accept, and ``included`` are the files that this file
    includes. ``doubts`` are about parameters of its URL. ``failure`` is why there is no result.
    """

    problem: str = ""
    gap: str = ""
    incidents: bool = True
    services: int = 0
    not_taken: int = 0
    included: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    failure: str = ""


Request = Send | CheckTarget | CheckTemplate
Announcement = Rendering | Sending | Sent
Result = Ready | Announcement | Checked | Delivery
request_of: Callable[[bytes | msgspec.Raw], Request] = msgspec.json.Decoder(Request).decode
result_of: Callable[[bytes | msgspec.Raw], Result] = msgspec.json.Decoder(Result).decode
parts_of: Callable[[bytes], tuple[int, msgspec.Raw]] = msgspec.json.Decoder(tuple[int, msgspec.Raw]).decode


def command() -> list[str]:
    """Return how to start this program as the sender process, also if it is one executable."""
    if getattr(sys, "frozen", False):
        return [sys.executable, COMMAND]
    # Without -P a module in the current directory would be run.
    return [sys.executable, "-P", "-m", "exporter", COMMAND]


def line(number: int, content: Any) -> bytes:
    """Return the line for a request or an answer."""
    return msgspec.json.encode((number, content)) + b"\n"


def read(file: IO[bytes]) -> tuple[int, msgspec.Raw] | None:
    """Return the number and the content of the next line; None at the end, or if it is not complete."""
    found = file.readline(LONGEST_LINE)
    return parts_of(found) if found.endswith(b"\n") else None
