"""The sender process: it gives each request to a child, and knows why a child ended.

Apprise and Jinja2 are loaded here once. A child is forked from this process, which has one thread, so that it
starts in milliseconds and shares that memory; on Windows it is a program of its own. It handles one request
at a time, and none after an attempt that failed. A child that exceeds a limit of memory or CPU time is ended
by the kernel, one that takes too long is killed here; all others go on. This process ends with its standard
input.
"""

import contextlib
import gc
import math
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
from msgspec.structs import replace

from exporter.model.messages import Delivery, Failure
from exporter.outputs.notifications import child, protocol
from exporter.outputs.notifications.protocol import (
    Checked,
    CheckTarget,
    CheckTemplate,
    Ready,
    Rendering,
    Request,
    Result,
    Send,
    Sending,
    Sent,
)

# Each takes some 10 MiB, and at most 16 MiB more than this process.
MOST_CHILDREN = 4
# Receivers that hang must leave room for others.
_MOST_HANGING = 2
_PREPARE_SECONDS = 20.0
# A receiver has 5 s to accept a connection, and 60 s for each part of its answer.
_SEND_SECONDS = 66.0
# So long while the messages of another target wait for its child.
_CROWDED_SECONDS = 10.0
_IDLE_SECONDS = 2.0
# A request whose child ends before anything is sent is tried so often.
_MOST_TRIES = 3
# Under memory pressure the kernel is to end children first, and this process rather than the exporter.
_OOM_SCORE, _CHILD_OOM_SCORE = 500, 200
_CHILD = "child"
_PIECE_BYTES = 2**16


class _Process(Protocol):
    """A child, as `subprocess.Popen` represents one."""

    stdin: Any
    stdout: Any

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class _Job(msgspec.Struct):
    """A request, how often its child ended before it was sent, and which templates could not be used."""

    number: int
    request: Request
    tries: int = 0
    remarks: dict[str, str] = {}


class _Child(msgspec.Struct, eq=False):
    """A child, the job that it works on, and how far that is; ``until`` is when it is ended.

    One that is ``outdated`` gets no further job. ``late`` is how many seconds the receiver had if it is ended
    because of that.
    """

    process: _Process
    until: float = math.inf
    outdated: bool = False
    late: float = 0.0
    job: _Job | None = None
    template: str = ""
    sending: Sending | None = None


class Pool:
    """Gives requests to children and passes their results on."""

    def __init__(self, output: IO[bytes], *, forks: bool = sys.platform != "win32") -> None:
        self._output = output
        self._forks = forks
        self._streams: _Streams = _Selected() if forks else _Threaded()
        self._waiting: list[_Job] = []
        self._children: list[_Child] = []
        # The user's templates that do not end, by key, text and format.
        self._endless: set[tuple[str, str, str]] = set()

    def run(self, requests: IO[bytes]) -> None:
        """Serve until there are no more requests; those in progress end then, too."""
        self._streams.add(None, requests)
        self._answer(0, Ready())
        while True:
            for source, line in self._streams.wait(self._pause()):
                if source is not None:
                    self._hear(source, line)
                elif line:
                    self._take(line)
                else:
                    for one in self._children:
                        one.process.kill()
                    return
            self._end_late()
            self._hand_out()

    def _answer(self, number: int, result: Result) -> None:
        self._output.write(protocol.line(number, result))
        self._output.flush()

    def _take(self, line: bytes) -> None:
        number, data = protocol.parts_of(line)
        request = protocol.request_of(data)
        if isinstance(request, CheckTarget):
            # The exporter has read its configuration, and Apprise's file, again.
            for one in self._children:
                one.outdated = True
                if one.job is None:
                    self._dismiss(one)
        elif isinstance(request, CheckTemplate):
            # It may have been one odd message.
            self._endless.discard(_template(request, request.key))
        self._waiting.append(_Job(number, request))

    def _pause(self) -> float | None:
        until = min(self._limits().values(), default=math.inf)
        return None if until == math.inf else max(until - time.monotonic(), 0.0)

    def _limits(self) -> dict[_Child, float]:
        """Return when each child is ended: the longest sending earlier if other targets wait for room."""
        limits = {one: one.until for one in self._children}
        waiting = {_lane(job.request) for job in self._waiting if not _hangs(job.request)}
        waiting -= {_lane(one.job.request) for one in self._children if one.job is not None}
        room = MOST_CHILDREN - sum(one.job is not None and one.until != math.inf for one in self._children)
        sending = (one for one in self._children if one.job is not None and one.sending is not None)
        for one in sorted(sending, key=lambda one: one.until)[: max(len(waiting) - room, 0)]:
            limits[one] -= _SEND_SECONDS - _CROWDED_SECONDS
        return limits

    def _hand_out(self) -> None:
        # The gravest first, of those as grave the oldest.
        for job in sorted(self._waiting, key=lambda job: -_weight(job.request)):
            if (found := self._child_for(job.request)) is not None:
                self._waiting.remove(job)
                job.request = self._without_endless(job)
                found.job, found.template, found.sending = job, "", None
                found.until = time.monotonic() + _PREPARE_SECONDS
                # If it has ended, the end of its results says so.
                with contextlib.suppress(OSError):
                    found.process.stdin.write(protocol.line(job.number, job.request))
                    found.process.stdin.flush()

    def _child_for(self, request: Request) -> _Child | None:
        """Return an idle child for a request, or start one; None while there is no room."""
        busy = [one.job.request for one in self._children if one.job is not None]
        if _hangs(request) and sum(map(_hangs, busy)) >= _MOST_HANGING:
            return None
        # The more a target has, the more must be left for others.
        if MOST_CHILDREN - len(busy) <= list(map(_lane, busy)).count(_lane(request)):
            return None
        for one in self._children:
            if one.job is None and not one.outdated:
                return one
        if len(self._children) >= MOST_CHILDREN:
            return None
        found = _Child(_started(forks=self._forks))
        self._children.append(found)
        self._streams.add(found, found.process.stdout)
        return found

    def _dismiss(self, one: _Child) -> None:
        """End an idle child; it is counted until it has ended."""
        one.until, one.outdated = math.inf, True
        with contextlib.suppress(OSError):
            one.process.stdin.close()

    def _hear(self, one: _Child, line: bytes) -> None:
        """Take a line from a child, or its end."""
        if not line:
            self._bury(one)
            return
        result, job = protocol.result_of(protocol.parts_of(line)[1]), one.job
        if job is None:
            return
        if isinstance(result, Rendering):
            one.template = result.key
        elif isinstance(result, Sent):
            self._answer(job.number, result)
        elif isinstance(result, Sending):
            one.sending, one.until = result, time.monotonic() + _SEND_SECONDS
            self._answer(job.number, result)
        else:
            one.job, one.until = None, time.monotonic() + _IDLE_SECONDS
            if isinstance(result, Delivery) and job.remarks:
                result = replace(result, remarks=job.remarks | result.remarks)
            self._answer(job.number, result)
            # What a failed attempt has left in memory must not be missing for the next one.
            if one.outdated or (isinstance(result, Delivery) and not result.delivered):
                self._dismiss(one)

    def _end_late(self) -> None:
        now = time.monotonic()
        for one, until in self._limits().items():
            if until <= now and one.job is None:
                self._dismiss(one)
            elif until <= now:
                one.until, one.late = math.inf, _SEND_SECONDS - (one.until - until)
                one.process.kill()

    def _bury(self, one: _Child) -> None:
        """Forget a child that has ended; its job is tried again unless its message may have been sent."""
        with contextlib.suppress(OSError):
            one.process.stdin.close()
        one.process.stdout.close()
        status, job = one.process.wait(), one.job
        self._children.remove(one)
        if job is None:
            return
        endless = sys.platform != "win32" and status == -signal.SIGXCPU
        why = (
            f"takes more than {child.CPU_SECONDS} s of CPU time"
            if endless
            else f"ended its process ({status})"
        )
        if one.sending is not None and isinstance(job.request, Send):
            reason = f"it did not answer within {one.late:g} s" if one.late else f"its answer {why}"
            self._answer(
                job.number,
                Delivery(
                    False,
                    reason,
                    Failure.UNANSWERED,
                    remarks=job.remarks,
                ),
            )
        elif one.template and isinstance(job.request, Send):
            if endless:
                self._endless.add(_template(job.request, one.template))
            job.request = _without(job.request, one.template)
            job.remarks = job.remarks | {one.template: why}
            self._waiting.insert(0, job)
        elif endless and isinstance(job.request, CheckTemplate):
            self._answer(job.number, Checked(why))
        elif (job := replace(job, tries=job.tries + 1)).tries < _MOST_TRIES:
            self._waiting.insert(0, job)
        else:
            ended = "the process for it ended"
            result = Delivery(False, ended) if isinstance(job.request, Send) else Checked(failure=ended)
            self._answer(job.number, result)

    def _without_endless(self, job: _Job) -> Request:
        """Return the request without templates that are known not to end."""
        request = job.request
        if isinstance(request, Send):
            for key in ("title", "body"):
                if _template(request, key) in self._endless:
                    request = _without(request, key)
        return request


def _lane(request: Request) -> str:
    """Return what shares children fairly: the target of a message, targets to check, a template."""
    if isinstance(request, Send):
        return request.address.target
    return "" if isinstance(request, CheckTarget) else repr(_template(request, request.key))


def _hangs(request: Request) -> bool:
    return isinstance(request, Send) and request.hangs


def _weight(request: Request) -> int:
    return request.message.severity.weight if isinstance(request, Send) else 0


def _template(request: Send | CheckTemplate, key: str) -> tuple[str, str, str]:
    return key, getattr(request.templates, key), request.templates.format


def _without(request: Send, key: str) -> Send:
    return replace(request, templates=replace(request.templates, **{key: ""}))


def _started(*, forks: bool) -> _Process:
    """Start a child: from this process, or as a program of its own."""
    if sys.platform != "win32" and forks:
        return _Fork()
    return subprocess.Popen(  # noqa: S603  # this program itself
        [*protocol.command(), _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )


if sys.platform != "win32":

    class _Fork:
        """A child that is forked from this process."""

        def __init__(self) -> None:
            requests, self_writes = os.pipe()
            self_reads, results = os.pipe()
            self._pid = os.fork()
            if not self._pid:
                # Nothing of this process goes on in the child.
                try:
                    _keep_only(requests, results)
                    _add_oom_score(_CHILD_OOM_SCORE)
                    child.serve(os.fdopen(requests, "rb"), os.fdopen(results, "wb"))
                finally:
                    os._exit(0)
            os.close(requests)
            os.close(results)
            self.stdin, self.stdout = os.fdopen(self_writes, "wb"), os.fdopen(self_reads, "rb", 0)

        def kill(self) -> None:
            os.kill(self._pid, signal.SIGKILL)

        def wait(self) -> int:
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _keep_only(*descriptors: int) -> None:
        """Close all other descriptors; the ends of pipes would keep other children from noticing theirs."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        start = 3
        for one in sorted(descriptors):
            os.closerange(start, one)
            start = one + 1
        os.closerange(start, os.sysconf("SC_OPEN_MAX"))


class _Streams(Protocol):
    """Reads lines of several streams at once."""

    def add(self, source: _Child | None, file: IO[bytes]) -> None: ...

    def wait(self, timeout: float | None) -> Iterator[tuple[_Child | None, bytes]]:
        """Yield the lines that have come, each with its source, b"" for the end of one."""
        ...


class _Selected:
    """For descriptors that the kernel can wait for, so that this process needs no thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, bytearray] = {}

    def add(self, source: _Child | None, file: IO[bytes]) -> None:
        self._selector.register(file, selectors.EVENT_READ, source)
        self._parts[file.fileno()] = bytearray()

    def wait(self, timeout: float | None) -> Iterator[tuple[_Child | None, bytes]]:
        for found, _ in self._selector.select(timeout):
            data, part = os.read(found.fd, _PIECE_BYTES), self._parts[found.fd]
            if not data:
                # Closing the file frees its number for another stream.
                self._selector.unregister(found.fileobj)
                del self._parts[found.fd]
                yield found.data, b""
            part += data
            if b"\n" in data:
                *lines, rest = bytes(part).split(b"\n")
                part[:] = rest
                yield from ((found.data, line) for line in lines)


class _Threaded:
    """For Windows, where pipes can only be waited for by a thread each."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[tuple[_Child | None, bytes]] = queue.SimpleQueue()

    def add(self, source: _Child | None, file: IO[bytes]) -> None:
        threading.Thread(target=self._read, args=[source, file], daemon=True).start()

    def wait(self, timeout: float | None) -> Iterator[tuple[_Child | None, bytes]]:
        with contextlib.suppress(queue.Empty):
            yield self._lines.get(timeout=timeout)

    def _read(self, source: _Child | None, file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            for line in iter(file.readline, b""):
                self._lines.put((source, line))
        self._lines.put((source, b""))


def main() -> None:
    """Run the sender process, or a child of it on Windows."""
    # Plugins may print; the answers go through a descriptor of their own.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The exporter ends this process itself.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(OSError):
        _load()
        if sys.argv[2:] == [_CHILD]:
            child.serve(sys.stdin.buffer, output)
        else:
            _separate()
            Pool(output).run(os.fdopen(0, "rb", 0))
    # Attempts in progress do not keep it.
    os._exit(0)


def _separate() -> None:
    """Leave no core files, which would have secrets, and be ended before the exporter."""
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _add_oom_score(_OOM_SCORE)


def _add_oom_score(more: int) -> None:
    file = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        file.write_text(str(min(int(file.read_text()) + more, 1000)))


def _load() -> None:
    """Load what children need, with all of Apprise's plugins."""
    from apprise import Apprise

    from exporter.outputs.notifications import templates  # noqa: F401  # with Jinja2

    Apprise().add("json://localhost/")
    # Their collector would copy what they share with this process.
    gc.collect()
    gc.freeze()
