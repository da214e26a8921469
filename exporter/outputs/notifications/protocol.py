"""Requests to a child of the sender process, and its answers: lines of JSON."""

import sys
from collections.abc import Callable

import msgspec

from exporter.config import Templates
from exporter.config.addresses import Address
from exporter.model.messages import AnyMessage, Delivery
from exporter.timefmt import UtcTime

COMMAND = "sender-process"  # the first argument with which this program runs as the sender process
# How long a receiver may take to accept a connection, and to answer. A mail server may be slow after it has
# the mail, and a repeated mail is a second one.
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
MAIL_SECONDS = 60.0
CPU_SECONDS = 2  # of the processor, for a request
_WORK_SECONDS = 10.0  # for all of a request besides the receiver's answer
# The fault of an address that is not a URL.
NO_URL = "is not a valid URL; write it like mailto://user:password@example.com"
OUT_OF_TIME = b"\x1b"  # what a child writes when it exceeds `CPU_SECONDS`; not valid in JSON


class Send(msgspec.Struct, frozen=True, omit_defaults=True, tag="send"):
    """Render a message at ``now`` and send it."""

    address: Address
    message: AnyMessage
    now: UtcTime
    templates: Templates = Templates()
    exporter_url: str = ""
    runbook_url: str = ""
    timezone: str = "UTC"  # of times in the message
    storage: str = ""  # Apprise's directory
    marker: str = ""  # the beginning of the title
    stands_for: tuple[tuple[str, UtcTime], ...] = ()  # transition and time of messages that are left out
    failed: bool = False  # whether sending has failed before
    traceparent: str = ""
    services: tuple[str, ...] = ()  # those behind the target that have the message already
    is_mail: bool = False  # whether one of them is a mail server
    is_open: bool = True  # whether the target may have an incident of the same life


class CheckTarget(msgspec.Struct, frozen=True, tag="target"):
    """Find out whether Apprise accepts an address."""

    address: Address


class CheckTemplate(msgspec.Struct, frozen=True, tag="template"):
    """Compile a template, ``title`` or ``body``, and render it for samples."""

    key: str
    templates: Templates


class Rendering(msgspec.Struct, frozen=True, tag="rendering"):
    """The user's template, ``title`` or ``body``, is being used."""

    key: str


class Sending(msgspec.Struct, frozen=True, tag="sending"):
    """From here on the message may arrive."""


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """One of several services behind a target has the message."""

    service: str


class Checked(msgspec.Struct, frozen=True, omit_defaults=True, tag="checked"):
    """The result of a check of an address or a template."""

    problem: str = ""  # what is wrong, with the remedy
    gap: str = ""  # why a template fails if Azure leaves something out
    incidents: bool = True  # whether any service behind the address knows incidents
    is_mail: bool = False  # whether any of them is a mail server
    services: int = 0  # their number
    not_taken: int = 0  # the number of those in the Apprise file that Apprise does not accept
    included: tuple[str, ...] = ()  # the files that it includes
    doubts: tuple[str, ...] = ()  # about parameters of the URL
    failure: str = ""  # why there is no result


Request = Send | CheckTarget | CheckTemplate
Announcement = Rendering | Sending | Sent
Result = Announcement | Checked | Delivery
request_of: Callable[[bytes], Request] = msgspec.json.Decoder(Request).decode
result_of: Callable[[bytes], Result] = msgspec.json.Decoder(Result).decode


def may_be_mail(address: Address) -> bool:
    """Return whether a service behind an address may be a mail server, before it is checked."""
    return address.apprise_config is not None or "mailto" in address.url.lower()


def patience(request: Request) -> float:
    """Return how many seconds a receiver has for its answer to a request."""
    return MAIL_SECONDS if isinstance(request, Send) and request.is_mail else READ_SECONDS


def limit(request: Request) -> int:
    """Return how many seconds a child has for a request, all in all."""
    return round(patience(request) + CONNECT_SECONDS + _WORK_SECONDS)


def command(*arguments: str) -> list[str]:
    """Return how to start this program as the sender process, also if it is one executable."""
    if getattr(sys, "frozen", False):
        return [sys.executable, COMMAND, *arguments]
    # Without -P a module in the current directory would be run.
    return [sys.executable, "-P", "-m", "exporter", COMMAND, *arguments]
