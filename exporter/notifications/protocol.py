"""The messages between the exporter and its sender process: lines of JSON, each a number and the content."""

from collections.abc import Callable
from typing import IO, Any

import msgspec

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.jobs import UtcTime
from exporter.model.messages import AnyMessage, Backlog, Delivery

# The first argument with which this program runs as the sender process.
COMMAND = "sender-process"
# A template's limits in CPU time and characters.
CPU_SECONDS = 1
MOST_CHARACTERS = 2**20
_LONGEST_LINE = 64 * 2**20


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """Render messages at ``now`` and send them: a digest of several, or the last one.

    ``failed`` is whether sending has failed before, ``attempts`` how often it may have ended the process.
    ``services`` are those behind the target that have the message already. ``marker`` begins the title.
    ``timezone`` is that of times in the message. ``is_plain`` is true if the user's templates must not be
    used. ``storage`` is Apprise's directory.
    """

    address: Address
    messages: tuple[AnyMessage, ...]
    now: UtcTime
    templates: Templates = Templates()
    exporter_url: str = ""
    timezone: str = "UTC"
    storage: str = ""
    marker: str = ""
    is_digest: bool = False
    is_plain: bool = False
    failed: bool = False
    attempts: int = 0
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


class Sending(msgspec.Struct, frozen=True, tag="sending"):
    """From here on the message of this request may arrive."""


class Checked(msgspec.Struct, frozen=True, omit_defaults=True, tag="checked"):
    """The result of a check: ``problem`` is what is wrong, with the remedy.

    ``gap`` is why a template fails if Azure leaves something out. ``services`` is the number of services
    behind an address. ``not_taken`` is the number of those in its Apprise file that Apprise does not accept,
    and ``included`` are the files that this file includes. ``doubts`` are about parameters of its URL.
    ``failure`` is why there is no result.
    """

    problem: str = ""
    gap: str = ""
    backlog: Backlog = Backlog.EACH
    services: int = 0
    not_taken: int = 0
    included: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    failure: str = ""


Request = Send | CheckTarget | CheckTemplate
Result = Ready | Sending | Checked | Delivery
request_of: Callable[[bytes | msgspec.Raw], Request] = msgspec.json.Decoder(Request).decode
result_of: Callable[[bytes | msgspec.Raw], Result] = msgspec.json.Decoder(Result).decode
_parts_of = msgspec.json.Decoder(tuple[int, msgspec.Raw]).decode


def write(file: IO[bytes], number: int, content: Any) -> None:
    """Write a line."""
    file.write(msgspec.json.encode((number, content)) + b"\n")
    file.flush()


def read(file: IO[bytes]) -> tuple[int, msgspec.Raw] | None:
    """Return the number and the content of the next line; None at the end, or if it is not complete."""
    line = file.readline(_LONGEST_LINE)
    return _parts_of(line) if line.endswith(b"\n") else None
