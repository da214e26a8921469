"""The exporter's side of the sender process, which it starts on demand, and replaces if it ends or hangs."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future

import msgspec

from exporter.clock import Clock
from exporter.health import DegradedReason, Health
from exporter.model.messages import Delivery, Failure
from exporter.notifications import protocol
from exporter.notifications.protocol import CPU_SECONDS, Checked, CheckTemplate, Ready, Request, Send, Sending
from exporter.work import Backoff, Loop

log = logging.getLogger(__name__)

_IDLE_SECONDS = 600.0
_TICK_SECONDS = 1.0
# In a longer gap between two looks the VM was frozen, or the machine busy.
_LONGEST_TICK = 2.0
# A request that has not come so far, or ended, hangs. Sending itself is limited to 66 s of activity.
_PREPARE_SECONDS = 20.0
_SEND_SECONDS = 150.0
# A request that has ended the process so often is given up.
_MOST_ENDS = 3
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
    """A request, its result, how often it ended the process, and how much time it has left."""

    request: Request
    future: "Future[Delivery | Checked]"
    ends: int = 0
    is_sending: bool = False
    left: float = _PREPARE_SECONDS

    @property
    def is_suspect(self) -> bool:
        """Whether it may have ended the process."""
        return self.ends > 0 or (isinstance(self.request, Send) and self.request.attempts > 0)


class SenderProcess:
    """Sends requests to the process, and returns its results; thread-safe."""

    def __init__(self, clock: Clock, health: Health, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._health = health
        self._environ = environ
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._number = 0
        self._waiting: dict[int, _Asked] = {}
        self._under_way: dict[int, _Asked] = {}
        self._start_at = self._ticked = self._used = clock.monotonic()
        self._backoff = Backoff(clock)
        self._loop = Loop("sender process", self._step)

    def ask(self, request: Request) -> "Future[Delivery | Checked]":
        """Return the result of a request, which has one in any case; does not wait for it."""
        future: Future[Delivery | Checked] = Future()
        with self._lock:
            if self._loop.stopping:
                future.set_result(_unknown(request, _STOPPING))
                return future
            self._number += 1
            self._waiting[self._number] = _Asked(request, future)
        self._loop.start()
        self._hand_over()
        return future

    def prepare(self) -> None:
        """Start the process, so that the next message need not wait for it."""
        with self._lock:
            self._used = self._clock.monotonic()
        self._loop.start()
        self._loop.wake()

    def stop(self) -> None:
        """End the process; requests that have no result yet get none from it."""
        self._loop.stop()
        # Afterwards no process is started.
        self._loop.join(_STOP_SECONDS)
        with self._lock:
            process, self._process = self._process, None
            left = [*self._waiting.values(), *self._under_way.values()]
            self._waiting, self._under_way = {}, {}
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        for asked in left:
            asked.future.set_result(_unknown(asked.request, _STOPPING))

    def _hand_over(self) -> None:
        """Write the requests that may go ahead to the process, or start one."""
        with self._writing:
            while (found := self._next()) is not None:
                process, number, asked = found
                # If it has ended, its end is noticed by the thread that reads its results.
                with contextlib.suppress(OSError, ValueError):
                    if process.stdin is not None:
                        protocol.write(process.stdin, number, asked.request)
        self._loop.wake()

    def _next(self) -> "tuple[subprocess.Popen[bytes], int, _Asked] | None":
        with self._lock:
            if self._process is None or not self._is_ready:
                return None
            # Only one of those that may have ended the process at a time, so that no other is given up.
            is_suspected = any(asked.is_suspect for asked in self._under_way.values())
            for number, asked in self._waiting.items():
                if not (is_suspected and asked.is_suspect):
                    self._under_way[number] = self._waiting.pop(number)
                    return self._process, number, asked
            return None

    def _step(self) -> float | None:
        now = self._clock.monotonic()
        with self._lock:
            elapsed, self._ticked = min(now - self._ticked, _LONGEST_TICK), now
            for asked in self._under_way.values():
                asked.left -= elapsed
            is_hanging = any(asked.left < 0 for asked in self._under_way.values())
            process, is_needed = self._process, bool(self._waiting or self._under_way)
            if is_needed:
                self._used = now
            is_idle = now - self._used >= _IDLE_SECONDS and not is_needed
            if is_idle:
                self._process, self._is_ready = None, False
        if process is None:
            return None if is_idle else self._start(now)
        if is_hanging:
            log.warning("the sender process hangs and is replaced")
            process.kill()
        elif is_idle and process.stdin is not None:
            process.stdin.close()
            return None
        return _TICK_SECONDS if is_needed else _IDLE_SECONDS - (now - self._used)

    def _start(self, now: float) -> float:
        if now < self._start_at:
            return self._start_at - now
        paths = os.pathsep.join(filter(None, sys.path))
        try:
            process = subprocess.Popen(  # noqa: S603  # this program itself
                command(),
                env={**self._environ, "PYTHONPATH": paths, "MALLOC_ARENA_MAX": "2"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return self._not_started(error.strerror or type(error).__name__)
        with self._lock:
            self._process = process
        threading.Thread(target=self._read, args=[process], name="sender results", daemon=True).start()
        return _TICK_SECONDS

    def _not_started(self, reason: str) -> float:
        pause = self._backoff.failed()
        self._start_at = self._clock.monotonic() + pause
        problem = f"the sender process cannot be started: {reason}"
        self._health.report(DegradedReason.NOTIFICATIONS_FAILING, problem, "sender process")
        if self._backoff.failures >= _MOST_ENDS:
            # A check is not worth waiting for; messages are.
            with self._lock:
                checks = [n for n, asked in self._waiting.items() if not isinstance(asked.request, Send)]
                given_up = [self._waiting.pop(number) for number in checks]
            for asked in given_up:
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
        if isinstance(result, Ready):
            with self._lock:
                self._is_ready = True
            self._backoff.succeeded()
            self._health.clear(DegradedReason.NOTIFICATIONS_FAILING, "sender process")
        elif isinstance(result, Sending):
            with self._lock:
                if (asked := self._under_way.get(number)) is not None:
                    asked.is_sending, asked.left = True, _SEND_SECONDS
            return
        else:
            with self._lock:
                asked = self._under_way.pop(number, None)
                self._used = self._clock.monotonic()
            if asked is not None:
                asked.future.set_result(result)
        self._hand_over()

    def _ended(self, process: "subprocess.Popen[bytes]") -> None:
        """Repeat the requests of a process that has ended, unless their messages were being sent."""
        is_endless = sys.platform != "win32" and process.returncode == -signal.SIGPROF
        with self._lock:
            if self._process is not process:
                return
            was_ready, self._process, self._is_ready = self._is_ready, None, False
            under_way, self._under_way = self._under_way, {}
            results = []
            for number, asked in under_way.items():
                asked.ends += 1
                asked.left = _PREPARE_SECONDS
                if (result := _after_end(asked, is_endless=is_endless)) is not None:
                    results.append((asked, result))
                else:
                    self._waiting[number] = asked
        if was_ready:
            extra = {"status": process.returncode, "requests": len(under_way)}
            log.warning("the sender process ended", extra=extra)
        else:
            self._not_started(f"it ended with status {process.returncode}")
        # Afterwards, so that the log has the cause before its consequences.
        for asked, result in results:
            asked.future.set_result(result)
        self._loop.wake()


def _after_end(asked: _Asked, *, is_endless: bool) -> Delivery | Checked | None:
    """Return the result of a request whose process ended; None if it is to be repeated."""
    request = asked.request
    if isinstance(request, Send):
        if asked.is_sending:
            return Delivery(False, _ENDED, Failure.ENDED)
        if asked.ends >= _MOST_ENDS:
            return Delivery(False, f"{_ENDED} {_MOST_ENDS} times", Failure.ENDED, attempts=_MOST_ENDS)
        # Whatever it was, it was not the built-in text.
        asked.request = msgspec.structs.replace(request, is_plain=True)
        return None
    if is_endless and isinstance(request, CheckTemplate):
        return Checked(f"takes more than {CPU_SECONDS} s of CPU time")
    return _unknown(request, _ENDED) if asked.ends >= _MOST_ENDS else None


def _unknown(request: Request, reason: str) -> Delivery | Checked:
    """Return the result of a request that has none."""
    return Delivery(False, reason) if isinstance(request, Send) else Checked(failure=reason)


def command() -> list[str]:
    """Return how to start this program as the sender process, also if it is one executable."""
    if getattr(sys, "frozen", False):
        return [sys.executable, protocol.COMMAND]
    # Without -P a module in the current directory would be run.
    return [sys.executable, "-P", "-m", "exporter", protocol.COMMAND]


def environment(environ: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return variables for the process, such as those of proxies, but none ``named`` in ``${...}``."""
    return {name: text for name, text in environ.items() if name not in named and _PASSED.fullmatch(name)}
