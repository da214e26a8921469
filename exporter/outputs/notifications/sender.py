"""Attempts, from the exporter's side: at most four at once, each by a child of the sender process."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec.structs import replace

from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import protocol, windows
from exporter.outputs.notifications.protocol import (
    Checked,
    CheckTemplate,
    Rendering,
    Request,
    Send,
    Sending,
    Sent,
)

# Each child takes some 10 MiB, and at most 16 MiB more than the sender process.
MOST_ATTEMPTS = 4
# Mail servers may be slow for a minute, and must leave room for others.
_MOST_MAILS = 2
# A request whose child ends before anything is sent is tried so often.
_MOST_TRIES = 3
_STOPPING = "the exporter is stopping"
_ENDED = "the process for it ended"
_ENDLESS = f"takes more than {protocol.CPU_SECONDS} s of CPU time"
# The variables that Python, TLS, requests and Apprise read. The others may be secrets, and requests looks
# through all of them twice for each message: a pod has seven for each service of its namespace.
_PASSED = re.compile(
    r"\w+_proxy|path(ext)?|home|user(name|profile)?|lang(uage)?|lc_\w+|tz(dir)?|te?mp(dir)?|python\w+|ld_\w+"
    r"|malloc_\w+|ssl\w+|openssl_\w+|nix_ssl_cert_file|\w+_ca_bundle|netrc|res_options|localdomain|hostaliases"
    r"|apprise_\w+|dbus_\w+|display|xdg_\w+"
    r"|systemroot|systemdrive|windir|comspec|(local)?appdata|program(data|files)",
    re.IGNORECASE,
)


class _Waiting(msgspec.Struct, eq=False):
    """A request that waits for its place; those of targets that ``failed`` last stand behind the others."""

    failed: bool
    is_mail: bool


class _Places:
    """Lets so many attempts in at once, in the order in which they asked; nobody is put out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._inside: list[_Waiting] = []
        self.is_closed = False

    @contextmanager
    def one(self, *, failed: bool, is_mail: bool) -> Iterator[bool]:
        """Wait for a place; yield whether there is one, which is False once this is closed."""
        me = _Waiting(failed, is_mail)
        with self._changed:
            self._waiting.append(me)
            self._changed.wait_for(lambda: self.is_closed or self._next() is me)
            self._waiting.remove(me)
            self._inside.append(me)
            self._changed.notify_all()
        try:
            yield not self.is_closed
        finally:
            with self._changed:
                self._inside.remove(me)
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _next(self) -> _Waiting | None:
        if len(self._inside) >= MOST_ATTEMPTS:
            return None
        has_room = sum(one.is_mail for one in self._inside) < _MOST_MAILS
        allowed = (one for one in self._waiting if has_room or not one.is_mail)
        return min(allowed, key=lambda one: one.failed, default=None)


class Children(Protocol):
    """How requests are done on a platform; see there."""

    def exchange(self, lane: str, request: bytes, hear: Callable[[bytes], bool], seconds: float) -> None: ...
    def prepare(self) -> None: ...
    def stop(self) -> None: ...


class _Heard(msgspec.Struct):
    """What a child has said about a request, which is tried again if it said neither result nor `Sending`."""

    request: Request
    # Called for each of several services that has the message.
    note: Callable[[str], None]
    result: Delivery | Checked | None = None
    sending_since: float | None = None
    rendering: str = ""
    is_out_of_time: bool = False
    services: tuple[str, ...] = ()

    def hear(self, line: bytes) -> bool:
        """Take a line; return whether it is a result after which the child goes on."""
        self.is_out_of_time = self.is_out_of_time or protocol.OUT_OF_TIME in line
        try:
            found = protocol.result_of(line)
        except msgspec.MsgspecError:
            # The child was ended within it.
            return False
        if isinstance(found, Rendering):
            self.rendering = found.key
        elif isinstance(found, Sending):
            self.sending_since = time.monotonic()
        elif isinstance(found, Sent):
            self.services += (found.service,)
            self.note(found.service)
        else:
            self.result = found
        return isinstance(found, Delivery) and found.delivered

    def outcome(self) -> Delivery | Checked | None:
        """Return the result; None if the request can be repeated."""
        if self.result is None and self.sending_since is not None:
            waited, most = time.monotonic() - self.sending_since, protocol.patience(self.request)
            why = f"it did not answer within {most:g} s" if waited >= most else "its process was ended"
            self.result = Delivery(
                False, f"its answer {_ENDLESS}" if self.is_out_of_time else why, Failure.UNANSWERED
            )
        elif self.result is None and self.is_out_of_time and isinstance(self.request, CheckTemplate):
            self.result = Checked(_ENDLESS)
        if isinstance(self.result, Delivery) and isinstance(self.request, Send):
            services = dict.fromkeys((*self.request.services, *self.services, *self.result.services))
            return replace(self.result, services=tuple(services))
        return self.result


class SenderProcess:
    """Has requests done by children of the sender process; thread-safe."""

    def __init__(self, environ: Mapping[str, str], *, forks: bool = sys.platform != "win32") -> None:
        paths = os.pathsep.join(filter(None, sys.path))
        self._children = _children({**environ, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "2"}, forks=forks)
        self._places = _Places()

    def ask(
        self, request: Request, *, failed: bool = False, note: Callable[[str], None] = lambda _: None
    ) -> Delivery | Checked:
        """Wait for a place and for the result of a request, which has one in any case.

        ``failed`` is whether the last attempt of its target failed. ``note`` is called for each of several
        services that has the message, before the others have it.
        """
        is_mail = isinstance(request, Send) and request.is_mail
        with self._places.one(failed=failed, is_mail=is_mail) as is_open:
            return self._done(request, note) if is_open else _unknown(request, _STOPPING)

    def prepare(self) -> None:
        """Start the process, so that the next message need not wait for it."""
        if not self._places.is_closed:
            self._children.prepare()

    def close(self) -> None:
        """Begin no further attempt."""
        self._places.close()

    def stop(self) -> None:
        """End the process, and attempts in progress."""
        self.close()
        self._children.stop()

    def _done(self, request: Request, note: Callable[[str], None]) -> Delivery | Checked:
        lane = request.address.target if isinstance(request, Send) else ""
        remarks: dict[str, str] = {}
        for _ in range(_MOST_TRIES):
            heard = _Heard(request, note)
            try:
                seconds = protocol.limit(request)
                self._children.exchange(lane, msgspec.json.encode(request) + b"\n", heard.hear, seconds)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                return _unknown(request, f"the sender process cannot be started: {reason}")
            found = heard.outcome()
            if isinstance(found, Delivery):
                return replace(found, remarks=remarks | found.remarks) if remarks else found
            if found is not None:
                return found
            if self._places.is_closed:
                return _unknown(request, _STOPPING)
            if heard.rendering and isinstance(request, Send):
                remarks[heard.rendering] = _ENDLESS if heard.is_out_of_time else "ended its process"
                request = replace(request, templates=replace(request.templates, **{heard.rendering: ""}))
        return _unknown(request, _ENDED)


def _children(environ: Mapping[str, str], *, forks: bool) -> Children:
    if sys.platform != "win32" and forks:
        from exporter.outputs.notifications import posix

        return posix.Children(environ)
    return windows.Children(environ)


def _unknown(request: Request, reason: str) -> Delivery | Checked:
    """Return the result of a request that has none."""
    return Delivery(False, reason) if isinstance(request, Send) else Checked(failure=reason)


def environment(environ: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return variables for the process, such as those of proxies, but none ``named`` in ``${...}``."""
    return {name: text for name, text in environ.items() if name not in named and _PASSED.fullmatch(name)}
