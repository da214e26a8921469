"""`events`: the current events, from the running exporter or from IMDS, once or repeatedly."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import click
import h11
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from exporter.clock import Clock
from exporter.commands import terminal
from exporter.config import Config
from exporter.config.addresses import without_credentials
from exporter.errors import ExporterError, ImdsError, basic
from exporter.imds.client import ImdsClient, asked_again, client_of
from exporter.model.documents import decode_document
from exporter.model.events import lower
from exporter.model.views import EventView, listed_view, urgency
from exporter.model.wording import printable
from exporter.timefmt import rfc3339
from exporter.transport import Answer, LargeAnswerError, Request, Transport
from exporter.web import api

T = TypeVar("T")

_SECONDS = 5.0
_MOST_BYTES = 32 * 1024**2  # twice what the state can hold
_CORRECT = "pass the exporter's address as --exporter.url"
_INSTEAD = "or pass --imds.endpoint http://169.254.169.254 to ask IMDS instead"


class NoExporterError(ExporterError):
    """Nothing responds at the exporter's address."""


class RunningExporter:
    """A client of a running exporter; its ``url`` contains neither user name nor password.

    Each answer has 5 s and 32 MiB, because something else may listen on the port. Neither proxies nor
    redirects are followed: by default requests go only to this VM.
    """

    def __init__(self, url: str) -> None:
        credentials = urlsplit(url).netloc.rpartition("@")[0]
        self.url = without_credentials(url)
        self._headers = {"Authorization": f"Basic {basic(credentials)}"} if credentials else {}

    def events(self) -> api.Events:
        return self._ask("/api/v1/events", api.Events)

    def status(self) -> api.Status:
        return self._ask("/api/v1/status", api.Status)

    def _ask(self, path: str, kind: type[T]) -> T:
        answer = self._get(path)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            what = "does not accept this" if self._headers else "requires a"
            scheme = urlsplit(self.url).scheme
            raise ExporterError(
                f"{self.url} {what} user name and password: pass {scheme}://USER:PASSWORD@HOST:PORT in the "
                "environment variable SCHEDULED_EVENTS_EXPORTER_URL"
            )
        if answer.status != HTTPStatus.OK:
            raise ExporterError(f"{self.url} is not an exporter (status {answer.status}); {_CORRECT}")
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ExporterError(f"{self.url} is not an exporter of this version; {_CORRECT}") from error

    def _get(self, path: str) -> Answer:
        try:
            with contextlib.closing(Transport(self.url, limit=_MOST_BYTES)) as transport:
                return transport.send(Request("GET", self.url + path, self._headers), _SECONDS)
        except ssl.SSLCertVerificationError as error:
            raise ExporterError(
                f"{self.url} cannot be verified ({error.verify_message}); name the host as its certificate "
                "does, or set SSL_CERT_FILE to the authority's certificate"
            ) from error
        except ssl.SSLError as error:
            raise ExporterError(
                f"{self.url} does not speak TLS ({error}); if it serves no TLS, pass --exporter.url "
                "http://HOST:PORT"
            ) from error
        except LargeAnswerError as error:
            raise ExporterError(f"{self.url} is not an exporter: {error}; {_CORRECT}") from error
        except ConnectionRefusedError as error:
            raise NoExporterError(f"no exporter answers at {self.url}") from error
        except (ConnectionError, h11.RemoteProtocolError) as error:
            raise ExporterError(
                f"{self.url} closed the connection or does not speak HTTP; if the exporter serves TLS, pass "
                "--exporter.url https://HOST:PORT"
            ) from error
        except (OSError, ValueError, h11.LocalProtocolError) as error:
            raise NoExporterError(f"no exporter answers at {self.url}") from error


_LEAST_PREFIX = 4  # as git wants it of a commit's


def chosen(wanted: str, events: Sequence[T], ids: Callable[[T], Sequence[str]], so: str = "") -> T:
    """Return the event with an id, or else the only one whose id begins like that; ``ids`` are its ids.

    Raises:
        ExporterError: there is none, or there are several; ``so`` is the consequence.
    """
    word = lower(wanted.strip())
    matching = [event for event in events if word in map(lower, ids(event))]
    if not matching and len(word) >= _LEAST_PREFIX:
        matching = [event for event in events if any(lower(each).startswith(word) for each in ids(event))]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(printable(ids(event)[0]) for event in matching or events) or "none"
    shown = printable(wanted)
    if matching:
        raise ExporterError(f"{shown} is the beginning of several ids{so}. Write more of one of: {names}")
    if len(word) < _LEAST_PREFIX:
        raise ExporterError(
            f"{shown!r} is too short{so}. Write {_LEAST_PREFIX} or more characters of an id. "
            f"Pending events: {names}"
        )
    raise ExporterError(f"{shown} is not pending{so}. Pending events: {names}")


class EventList(msgspec.Struct, frozen=True):
    """The output of ``--json``: the events by `urgency`; from IMDS, without their lives so far."""

    source: Literal["exporter", "imds"]
    up: bool  # unless the exporter's last poll gave no valid document, so that there may be newer events
    instance: str | None
    api_version: str
    document_incarnation: int | None
    current: tuple[EventView, ...]


class _Look(msgspec.Struct, frozen=True):
    """An answer, with the lines above the events; ``error`` is the reason why it is out of date."""

    headline: tuple[str, ...]
    answer: EventList | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""


def show(
    settings: Config,
    clock: Clock,
    event_ids: Sequence[str] = (),
    *,
    exporter_url: str | None,
    as_json: bool,
    watch: bool,
) -> None:
    """Print the current events, or those `chosen`; with ``watch`` at every poll interval until interrupted.

    They come from the exporter, or from IMDS if no exporter responds or ``exporter_url`` is None.
    """
    sources = _Sources(settings, clock, exporter_url, event_ids)
    try:
        if not watch:
            _print(sources.look(), clock, as_json=as_json)
        elif as_json or not (console := Console()).is_interactive:
            for look in _looks(sources, settings.imds.poll_interval):
                _print(look, clock, as_json=as_json)
        else:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                for look in _looks(sources, settings.imds.poll_interval):
                    live.update(_drawn(look, clock, is_screen=True), refresh=True)
    except KeyboardInterrupt:
        return
    finally:
        sources.close()


class _Sources:
    def __init__(
        self, settings: Config, clock: Clock, exporter_url: str | None, event_ids: Sequence[str]
    ) -> None:
        # Each as it was given, with the id that it stands for once that has been seen.
        self._ids = dict.fromkeys(event_ids, "")
        self._settings = settings
        self._clock = clock
        self._exporter = RunningExporter(exporter_url) if exporter_url else None
        self._imds: ImdsClient | None = None
        self._name = settings.instance.name or None

    def look(self) -> _Look:
        look = self._look()
        if not self._ids or look.answer is None:
            return look
        events = look.answer.current
        for wanted, event_id in self._ids.items():
            self._ids[wanted] = event_id or chosen(wanted, events, lambda event: event.ids).id
        shown = tuple(event for event in events if event.id in self._ids.values())
        return msgspec.structs.replace(look, answer=msgspec.structs.replace(look.answer, current=shown))

    def _look(self) -> _Look:
        if self._exporter is None:
            return self._ask_imds()
        try:
            return self._ask_exporter(self._exporter)
        except NoExporterError as error:
            note = f"{error}; IMDS does not know when an event was first seen or started"
            try:
                return self._ask_imds(note)
            except ImdsError as failure:
                raise ExporterError(f"{error}, and IMDS has no usable answer: {failure}") from failure
        except ExporterError as error:
            raise ExporterError(f"{error}, {_INSTEAD}") from error

    def close(self) -> None:
        if self._imds is not None:
            self._imds.close()

    def _ask_exporter(self, exporter: RunningExporter) -> _Look:
        status, events = exporter.status(), exporter.events()
        answer = EventList(
            "exporter",
            status.up,
            events.instance,
            status.api_version,
            status.document_incarnation,
            events.current,
        )
        warnings, at = [], self._clock.now()
        if not status.up:
            at = status.last_success or at
            since = f"since {rfc3339(status.last_success)}" if status.last_success else "yet"
            warnings.append(f"the exporter has had no valid response from IMDS {since}: {status.last_error}")
        headline = (f"{_name(answer)}: the exporter at {exporter.url}", _when(answer, at))
        return _Look(headline, answer, tuple(warnings))

    def _ask_imds(self, *notes: str) -> _Look:
        imds = self._imds = self._imds or client_of(self._settings.imds, self._clock)
        body, warnings = asked_again(imds.fetch, self._clock), list[str]()
        if self._name is None:
            try:
                self._name = asked_again(imds.instance, self._clock).name or None
            except ImdsError as error:
                warnings.append(f"this VM's name is not known: {error}")
        document = decode_document(body, self._name)
        warnings = [*(defect.message for defect in document.defects), *warnings]
        events = sorted(document.events, key=urgency)
        listed = tuple(listed_view(event, event.target(self._name)) for event in events)
        answer = EventList("imds", True, self._name, imds.api_version, document.incarnation, listed)
        headline = (f"{_name(answer)}: IMDS at {imds.endpoint}", _when(answer, self._clock.now()), *notes)
        return _Look(headline, answer, tuple(warnings))


def _looks(sources: _Sources, interval: float) -> Iterator[_Look]:
    """Yield answers at every interval; after a failure, the last one with the error."""
    pause = threading.Event()
    last = _Look(("This VM's events",))
    while True:
        try:
            last = sources.look()
            yield last
        except ExporterError as error:
            # The JSON cannot mark an answer as outdated.
            yield msgspec.structs.replace(last, warnings=(), error=f"no usable answer: {error}")
        pause.wait(interval)


def _print(look: _Look, clock: Clock, *, as_json: bool) -> None:
    for warning in look.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    if not as_json:
        # The terminal wraps long lines, so that a name that is copied or searched for stays whole.
        Console().print(_drawn(msgspec.structs.replace(look, warnings=()), clock), soft_wrap=True)
        return
    if look.error:
        click.echo(f"error: {printable(look.error)}", err=True)
    if look.answer is not None and not look.error:
        click.echo(_escaped(msgspec.json.encode(look.answer).decode()))


def _escaped(text: str) -> str:
    """Return the same JSON with escapes in place of what would control a terminal or reorder text."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def _drawn(look: _Look, clock: Clock, *, is_screen: bool = False) -> Group:
    parts = [Text(printable(line)) for line in look.headline]
    parts += [Text(f"warning: {printable(text)}", style="yellow") for text in look.warnings]
    if look.error:
        parts.append(Text(f"error: {printable(look.error)}", style="bold red"))
    if look.answer is not None:
        table = terminal.table(look.answer.current, clock.now())
        if is_screen:
            # A line that goes on below would take the place of an event.
            table.no_wrap, table.overflow = True, "ellipsis"
        parts.append(table)
    return Group(*parts)


def _when(answer: EventList, at: datetime) -> str:
    unknown = "" if answer.up else "; newer events are unknown"
    return f"At {rfc3339(at)}, incarnation {answer.document_incarnation}{unknown}"


def _name(answer: EventList) -> str:
    return answer.instance or "an unnamed VM"
