"""The exporter's side of attempts: at most four at a time, each in a child of the sender process."""

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

MOST_ATTEMPTS = 4  # the child of each takes some 10 MiB, and at most 16 MiB more than the sender process
# Mail servers may take a minute, and must leave places for other services. So must targets that fail, which
# may be slow to do so, for those that work.
_MOST_MAILS = 2
_MOST_FAILED = 3
_MOST_TRIES = 3  # for a request whose child ends before it sends anything
_STOPPING = "the exporter is stopping"
_ENDED = "the process for it ended"
_ENDLESS = f"takes more than {protocol.CPU_SECONDS} s of CPU time"
# The variables that Python, TLS, requests and Apprise read. Others may be secrets, and requests searches all
# of them twice for each message: a pod has seven for each service of its namespace.
_PASSED = re.compile(
    r"\w+_proxy|path(ext)?|home|user(name|profile)?|lang(uage)?|lc_\w+|tz(dir)?|te?mp(dir)?|python\w+|ld_\w+"
    r"|malloc_\w+|ssl\w+|openssl_\w+|nix_ssl_cert_file|\w+_ca_bundle|res_options|localdomain|hostaliases"
    r"|apprise_\w+|dbus_\w+|display|xdg_\w+"
    r"|systemroot|systemdrive|windir|comspec|(local)?appdata|program(data|files)",
    re.IGNORECASE,
)


class _Waiting(msgspec.Struct, eq=False):
    """A request that waits for a place, or has one; ``failed`` is whether its target's last attempt did."""

    failed: bool
    is_mail: bool


class _Places:
    """Limits how many attempts are made at a time.

    Targets whose last attempt failed come after the others; otherwise the order is that of the requests. An
    attempt keeps its place until it ends.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._held: list[_Waiting] = []
        self.is_closed = False

    @contextmanager
    def place(self, *, failed: bool, is_mail: bool) -> Iterator[bool]:
        """Wait for a place, and hold it; yield False if this has been closed."""
        request = _Waiting(failed, is_mail)
        with self._changed:
            self._waiting.append(request)
            self._changed.wait_for(lambda: self.is_closed or self._next() is request)
            self._waiting.remove(request)
            self._held.append(request)
            self._changed.notify_all()
        try:
            yield not self.is_closed
        finally:
            with self._changed:
                self._held.remove(request)
                self._changed.notify_all()

    def close(self) -> None:
        """Begin no further attempt."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _next(self) -> _Waiting | None:
        if len(self._held) >= MOST_ATTEMPTS:
            return None
        takes_mail = sum(request.is_mail for request in self._held) < _MOST_MAILS
        takes_failed = sum(request.failed for request in self._held) < _MOST_FAILED
        allowed = (
            request
            for request in self._waiting
            if (takes_mail or not request.is_mail) and (takes_failed or not request.failed)
        )
        return min(allowed, key=lambda request: request.failed, default=None)


class Children(Protocol):
    """Passes requests to processes; the modules of the platforms describe the methods."""

    def exchange(self, lane: str, request: bytes, hear: Callable[[bytes], bool], seconds: float) -> None: ...
    def prepare(self) -> None: ...
    def stop(self) -> None: ...


class _Answers(msgspec.Struct):
    """What a child has answered to a request; without a result or `Sending`, the request can be repeated."""

    request: Request
    note: Callable[[str], None]  # called with each of several services once it has the message
    begun: float = msgspec.field(default_factory=time.monotonic)
    result: Delivery | Checked | None = None
    is_sending: bool = False
    rendering: str = ""
    is_out_of_time: bool = False
    services: tuple[str, ...] = ()

    def hear(self, line: bytes) -> bool:
        """Take a line; return whether it is a result after which the child waits for another request."""
        self.is_out_of_time = self.is_out_of_time or protocol.OUT_OF_TIME in line
        try:
            answer = protocol.result_of(line)
        except msgspec.MsgspecError:
            # The child was ended while it wrote the line.
            return False
        if isinstance(answer, Rendering):
            self.rendering = answer.key
        elif isinstance(answer, Sending):
            self.is_sending = True
        elif isinstance(answer, Sent):
            self.services += (answer.service,)
            self.note(answer.service)
        else:
            self.result = answer
        return isinstance(answer, Delivery) and answer.delivered

    def outcome(self) -> Delivery | Checked | None:
        """Return the result, or None if the request can be repeated."""
        if self.result is None and self.is_sending:
            why = "its process was ended"
            if time.monotonic() - self.begun >= protocol.limit(self.request):
                why = f"it did not answer within {protocol.patience(self.request):g} s"
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
    """Passes requests to children of the sender process; thread-safe."""

    def __init__(self, environ: Mapping[str, str], *, forks: bool = sys.platform != "win32") -> None:
        paths = os.pathsep.join(filter(None, sys.path))
        self._children = _children({**environ, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "2"}, forks=forks)
        self._places = _Places()

    def ask(
        self, request: Request, *, failed: bool = False, note: Callable[[str], None] = lambda _: None
    ) -> Delivery | Checked:
        """Wait for a place and for the result of a request; every request has a result.

        ``failed`` is whether the last attempt of its target failed. If there are several services, ``note``
        is called with each of them as soon as it has the message.
        """
        is_mail = isinstance(request, Send) and request.is_mail
        with self._places.place(failed=failed, is_mail=is_mail) as is_open:
            return self._result(request, note) if is_open else _unknown(request, _STOPPING)

    def prepare(self) -> None:
        """Start the process, so that the next message does not wait for it."""
        if not self._places.is_closed:
            self._children.prepare()

    def close(self) -> None:
        """Begin no further attempt."""
        self._places.close()

    def stop(self) -> None:
        self.close()
        self._children.stop()

    def _result(self, request: Request, note: Callable[[str], None]) -> Delivery | Checked:
        lane = request.address.target if isinstance(request, Send) else ""
        remarks: dict[str, str] = {}
        for _ in range(_MOST_TRIES):
            answers = _Answers(request, note)
            try:
                seconds = protocol.limit(request)
                self._children.exchange(lane, msgspec.json.encode(request) + b"\n", answers.hear, seconds)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                return _unknown(request, f"the sender process cannot be started: {reason}")
            result = answers.outcome()
            if isinstance(result, Delivery):
                return replace(result, remarks=remarks | result.remarks) if remarks else result
            if result is not None:
                return result
            if self._places.is_closed:
                return _unknown(request, _STOPPING)
            if answers.rendering and isinstance(request, Send):
                remarks[answers.rendering] = _ENDLESS if answers.is_out_of_time else "ended its process"
                request = replace(request, templates=replace(request.templates, **{answers.rendering: ""}))
        return _unknown(request, _ENDED)


def _children(environ: Mapping[str, str], *, forks: bool) -> Children:
    if sys.platform != "win32" and forks:
        from exporter.outputs.notifications import posix

        return posix.Children(environ)
    return windows.Children(environ)


def _unknown(request: Request, reason: str) -> Delivery | Checked:
    """Return the result of a request without an answer."""
    return Delivery(False, reason) if isinstance(request, Send) else Checked(failure=reason)


def environment(environ: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return the process' variables, such as those of proxies, without those ``named`` in ``${...}``."""
    return {name: text for name, text in environ.items() if name not in named and _PASSED.fullmatch(name)}
