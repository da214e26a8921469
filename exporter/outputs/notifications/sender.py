"""The exporter's side of the sender process, which it starts on demand, and replaces if it ends or hangs."""

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future

import msgspec
from msgspec.structs import replace

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import protocol
from exporter.outputs.notifications.protocol import Checked, Ready, Request, Send, Sending, Sent
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

_IDLE_SECONDS = 600.0
_TICK_SECONDS = 10.0
# While it works on requests it answers more often: its children end after 86 s.
_SILENT_SECONDS = 300.0
# After so many starts that failed, checks have no result.
_MOST_STARTS = 3
_STOP_SECONDS = 1.0
_STOPPING = "the exporter is stopping"
_ENDED = "the sender process ended"
# The variables that Python, TLS, requests and Apprise read. The others may be secrets, and requests looks
# through all of them twice for each message: a pod has seven for each service of its namespace.
_PASSED = re.compile(
    r"\w+_proxy|path(ext)?|home|user(name|profile)?|lang(uage)?|lc_\w+|tz(dir)?|te?mp(dir)?|python\w+|ld_\w+"
    r"|malloc_\w+|ssl\w+|openssl_\w+|nix_ssl_cert_file|\w+_ca_bundle|netrc|res_options|localdomain|hostaliases"
    r"|apprise_\w+|dbus_\w+|display|xdg_\w+"
    r"|systemroot|systemdrive|windir|comspec|(local)?appdata|program(data|files)",
    re.IGNORECASE,
)


class _Asked(msgspec.Struct):
    """A request and its result."""

    request: Request
    future: "Future[Delivery | Checked]"
    # Whether its message may have been sent.
    is_sending: bool = False
    # Those behind the target that have the message.
    services: tuple[str, ...] = ()


class SenderProcess:
    """Sends requests to the process, and returns its results; thread-safe."""

    def __init__(self, clock: Clock, health: Health, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._health = health
        self._environ = environ
        self._lock = threading.Lock()
        # Requests are written in the order of their numbers, outside of the other lock.
        self._writing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # Whether it has said that it takes requests.
        self._is_ready = False
        # Of the newest request.
        self._number = 0
        # The requests without a result, by number, and which of them are still to be written.
        self._asked: dict[int, _Asked] = {}
        self._unwritten: list[int] = []
        # Not before when the process is started, and when it was heard of.
        self._start_at = self._heard = clock.monotonic()
        self._backoff = Backoff(clock)
        self._loop = Loop("sender process", self._step)

    def ask(self, request: Request) -> "Future[Delivery | Checked]":
        """Return the result of a request, which has one in any case; does not wait for it."""
        future: Future[Delivery | Checked] = Future()
        with self._lock:
            if self._loop.stopping:
                future.set_result(_unknown(request, _STOPPING))
                return future
            if not self._asked:
                self._heard = self._clock.monotonic()
            self._number += 1
            had = request.services if isinstance(request, Send) else ()
            self._asked[self._number] = _Asked(request, future, services=had)
            self._unwritten.append(self._number)
        self._loop.start()
        self._write()
        return future

    def prepare(self) -> None:
        """Start the process, so that the next message need not wait for it."""
        with self._lock:
            self._heard = self._clock.monotonic()
        self._loop.start()
        self._loop.wake()

    def stop(self) -> None:
        """End the process; requests that have no result yet get none from it."""
        self._loop.stop()
        # Afterwards no process is started.
        self._loop.join(_STOP_SECONDS)
        with self._lock:
            process, self._process = self._process, None
            left, self._asked = self._asked, {}
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        for asked in left.values():
            asked.future.set_result(_unknown(asked.request, _STOPPING))

    def _write(self) -> None:
        """Write the requests that wait, if the process is ready."""
        with self._writing:
            while True:
                with self._lock:
                    process = self._process
                    if process is None or not self._is_ready or not self._unwritten:
                        break
                    number = self._unwritten.pop(0)
                    asked = self._asked.get(number)
                # If it has ended, its end is noticed by the thread that reads its results.
                with contextlib.suppress(OSError, ValueError):
                    if process.stdin is not None and asked is not None:
                        process.stdin.write(protocol.line(number, asked.request))
                        process.stdin.flush()
        self._loop.wake()

    def _step(self) -> float | None:
        now = self._clock.monotonic()
        with self._lock:
            process, is_needed = self._process, bool(self._asked)
            silent = now - self._heard
            is_idle = not is_needed and silent >= _IDLE_SECONDS
            if is_idle:
                self._process, self._is_ready = None, False
        if process is None:
            return None if is_idle else self._start(now)
        if is_idle:
            if process.stdin is not None:
                process.stdin.close()
            return None
        if is_needed and silent >= _SILENT_SECONDS:
            log.warning("the sender process hangs and is replaced")
            process.kill()
        return _TICK_SECONDS if is_needed else _IDLE_SECONDS - silent

    def _start(self, now: float) -> float:
        if now < self._start_at:
            return self._start_at - now
        paths = os.pathsep.join(filter(None, sys.path))
        try:
            process = subprocess.Popen(  # noqa: S603  # this program itself
                protocol.command(),
                env={**self._environ, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "2"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return self._not_started(error.strerror or type(error).__name__)
        with self._lock:
            self._process, self._heard = process, now
        threading.Thread(target=self._read, args=[process], name="sender results", daemon=True).start()
        return _TICK_SECONDS

    def _not_started(self, reason: str) -> float:
        pause = self._backoff.failed()
        self._start_at = self._clock.monotonic() + pause
        problem = f"the sender process cannot be started: {reason}"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, "sender process")
        if self._backoff.failures >= _MOST_STARTS:
            # A check is not worth waiting for; messages are.
            with self._lock:
                checks = {n: one for n, one in self._asked.items() if not isinstance(one.request, Send)}
                self._asked = {n: one for n, one in self._asked.items() if n not in checks}
            for asked in checks.values():
                asked.future.set_result(_unknown(asked.request, problem))
        return pause

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        """Take results until the process ends."""
        with contextlib.suppress(OSError), process:
            with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
                while process.stdout is not None and (frame := protocol.read(process.stdout)) is not None:
                    self._take(frame[0], protocol.result_of(frame[1]))
            process.kill()
        self._ended(process)

    def _take(self, number: int, result: protocol.Result) -> None:
        with self._lock:
            self._heard = self._clock.monotonic()
            asked = self._asked.get(number)
            if isinstance(result, Ready):
                self._is_ready = True
            elif isinstance(result, Sending) and asked is not None:
                asked.is_sending = True
            elif isinstance(result, Sent) and asked is not None:
                asked.services += (result.service,)
            elif isinstance(result, Delivery | Checked):
                self._asked.pop(number, None)
                if isinstance(result, Delivery) and asked is not None:
                    # A child that was ended did not say it again.
                    services = tuple(dict.fromkeys((*result.services, *asked.services)))
                    result = replace(result, services=services)
        if isinstance(result, Ready):
            self._backoff.succeeded()
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, "sender process")
            self._write()
        elif isinstance(result, Delivery | Checked) and asked is not None:
            asked.future.set_result(result)

    def _ended(self, process: "subprocess.Popen[bytes]") -> None:
        """Repeat the requests of a process that has ended, unless their messages were being sent."""
        with self._lock:
            if self._process is not process:
                return
            was_ready, self._process, self._is_ready = self._is_ready, None, False
            sending = {number: asked for number, asked in self._asked.items() if asked.is_sending}
            self._asked = {number: asked for number, asked in self._asked.items() if number not in sending}
            self._unwritten = list(self._asked)
            requests = len(self._asked) + len(sending)
        if was_ready:
            log.warning(
                "the sender process ended", extra={"status": process.returncode, "requests": requests}
            )
        else:
            self._not_started(f"it ended with status {process.returncode}")
        # Afterwards, so that the log has the cause before its consequences.
        for asked in sending.values():
            asked.future.set_result(Delivery(False, _ENDED, Failure.UNANSWERED, services=asked.services))
        self._loop.wake()


def _unknown(request: Request, reason: str) -> Delivery | Checked:
    """Return the result of a request that has none."""
    return Delivery(False, reason) if isinstance(request, Send) else Checked(failure=reason)


def environment(environ: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return variables for the process, such as those of proxies, but none ``named`` in ``${...}``."""
    return {name: text for name, text in environ.items() if name not in named and _PASSED.fullmatch(name)}
