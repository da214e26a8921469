"""The sender process on platforms with fork.

It loads Apprise and Jinja2, and forks a child for each socket that it receives; the exporter has the other
end. It does not see any request. The kernel ends a child that takes too much time or memory, and a child ends
when its socket is closed.
"""

import contextlib
import gc
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from exporter.outputs.notifications import protocol

assert sys.platform != "win32"  # noqa: S101  # for mypy

log = logging.getLogger(__name__)

_SILENT_SECONDS = 60.0  # after this time without a byte, the process or the child is taken for stopped
# How long a child waits for the next request. The exporter reuses it for a shorter time, because the child
# may be ending.
_GOES_ON_SECONDS = 2.0
_USED_SECONDS = 1.5
_IDLE_SECONDS = 600.0
_STOP_SECONDS = 0.5
_PIECE_BYTES = 2**16
_MOST_DATA = 16 * 2**20  # in addition to what a child inherits; a message takes 5 MiB
_STACK_BYTES = 256 * 1024  # the stacks of threads count as data
# Under memory pressure, the kernel ends children first, and this process before the exporter.
_OOM_SCORE, _CHILD_OOM_SCORE = 500, 200


class _Server(NamedTuple):
    """The sender process, and the socket through which it receives those of its children."""

    process: "subprocess.Popen[bytes]"
    channel: socket.socket


class _Stream(NamedTuple):
    """Our end of a child's socket, the child's process group, and since when it has been idle."""

    socket: socket.socket
    group: int
    idle_since: float = 0.0


class Children:
    """The exporter's side: passes requests to children of the sender process; thread-safe."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._is_stopped = False
        # Children that wait for another request, by the lane of the last one.
        self._idle: dict[str, _Stream] = {}
        self._busy: list[_Stream] = []

    def exchange(self, lane: str, request: bytes, hear: Callable[[bytes], bool], seconds: float) -> None:
        """Pass a request to an idle child, preferably that of the lane's last request, or to a new one.

        ``hear`` is called with each line that the child writes, and returns whether the child waits for
        another request after it. The kernel ends the child after ``seconds``.

        Raises:
            OSError: the process cannot be started.
        """
        stream = self._reused(lane)
        if stream is None or not self._converse(lane, stream, request, hear, seconds):
            self._converse(lane, self._started(), request, hear, seconds)

    def prepare(self) -> None:
        """Start the process, so that the next message does not wait for it."""
        with self._lock, contextlib.suppress(OSError):
            self._running()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            server, self._server = self._server, None
            idle, self._idle = self._idle, {}
            groups = {stream.group for stream in self._busy}
        if server is not None:
            groups.add(server.process.pid)
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for stream in idle.values():
            # Its child ends. If the process has ended, the number of its group may be that of another.
            stream.socket.close()
        if server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(_STOP_SECONDS)

    def _reused(self, lane: str) -> _Stream | None:
        with self._lock:
            stream = self._idle.pop(lane, None)
            if stream is None and self._idle:
                # With more targets than children, almost every message would need a new child.
                _, stream = self._idle.popitem()
            if stream is not None and time.monotonic() - stream.idle_since < _USED_SECONDS:
                self._busy.append(stream)
                return stream
        if stream is not None:
            stream.socket.close()
        return None

    def _started(self) -> _Stream:
        ours, theirs = socket.socketpair()
        with theirs, self._lock, contextlib.ExitStack() as failed:
            failed.callback(ours.close)
            server = self._running()
            try:
                socket.send_fds(server.channel, [b"+"], [theirs.fileno()])
            except OSError:
                # The process has just ended.
                self._server = None
                server = self._running()
                socket.send_fds(server.channel, [b"+"], [theirs.fileno()])
            failed.pop_all()
            stream = _Stream(ours, server.process.pid)
            self._busy.append(stream)
        return stream

    def _converse(
        self, lane: str, stream: _Stream, request: bytes, hear: Callable[[bytes], bool], seconds: float
    ) -> bool:
        """Send a request to a child, and read its answers; return whether there were any."""
        rest, is_reusable, has_answered = b"", False, False
        try:
            stream.socket.settimeout(_SILENT_SECONDS)
            stream.socket.sendall(request)
            while not is_reusable and (piece := stream.socket.recv(_PIECE_BYTES)):
                has_answered = True
                stream.socket.settimeout(seconds + _SILENT_SECONDS)
                rest, is_reusable = _hear(rest + piece, hear)
        except TimeoutError:
            # After the shutdown the child cannot announce that it sends. What it has announced can be read.
            with contextlib.suppress(OSError):
                stream.socket.shutdown(socket.SHUT_RDWR)
                while piece := stream.socket.recv(_PIECE_BYTES):
                    has_answered, (rest, is_reusable) = True, _hear(rest + piece, hear)
            if not has_answered:
                self._replace(stream.group)
        except ConnectionError:
            # The child ended before it had read everything.
            pass
        with self._lock:
            self._busy.remove(stream)
            if is_reusable:
                self._idle[lane] = stream._replace(idle_since=time.monotonic())
        if not is_reusable:
            hear(rest)
            stream.socket.close()
        return has_answered

    def _replace(self, process: int) -> None:
        """Kill a process that has not started a child."""
        with self._lock:
            if self._server is not None and self._server.process.pid == process:
                log.warning("the sender process hangs and is replaced")
                self._server.process.kill()

    def _running(self) -> _Server:
        if self._is_stopped:
            raise ConnectionAbortedError("the exporter is stopping")
        if self._server is None:
            ours, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as failed:
                failed.callback(ours.close)
                process = subprocess.Popen(  # noqa: S603  # this program itself
                    protocol.command(str(theirs.fileno())),
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
                failed.pop_all()
            self._server = _Server(process, ours)
            name = "sender process"
            threading.Thread(target=self._wait, args=[self._server], name=name, daemon=True).start()
        return self._server

    def _wait(self, server: _Server) -> None:
        """Wait for the end of the process; its children continue without it."""
        status = server.process.wait()
        with self._lock:
            server.channel.close()
            was_stopped = self._server is not server
            if not was_stopped:
                self._server = None
        if status and not was_stopped:
            log.warning("the sender process ended", extra={"status": status})


def _hear(answers: bytes, hear: Callable[[bytes], bool]) -> tuple[bytes, bool]:
    """Call ``hear`` with each complete line; return the rest, and whether any call returned true."""
    *lines, rest = answers.split(b"\n")
    results = [hear(line) for line in lines]
    return rest, any(results)


def main() -> None:
    """Run the sender process, with the number of its socket as argument."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    # The exporter ends this process itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Core files would contain secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _add_oom_score(_OOM_SCORE)
    _load()
    with contextlib.suppress(OSError):
        _serve(socket.socket(fileno=int(sys.argv[2])))
    os._exit(0)


def _load() -> None:
    """Load everything that children need, with all of Apprise's plugins."""
    from exporter.outputs.notifications import child, templates  # noqa: F401  # with Jinja2

    child.warm_up()
    # Otherwise their garbage collector would copy the memory that they share with this process.
    gc.collect()
    gc.freeze()


def _serve(channel: socket.socket) -> None:
    """Fork a child for each socket until the exporter closes the channel.

    Raises:
        TimeoutError: no socket was received for ten minutes.
    """
    # The CPU time of children is added to that of this process, and none stays as a zombie.
    signal.signal(signal.SIGCHLD, _reap)
    channel.settimeout(_IDLE_SECONDS)
    while (received := socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC))[0]:
        (number,) = received[1]
        # If there is no child, the exporter reads the end of the stream.
        with contextlib.suppress(OSError):
            if not os.fork():
                _be_child(channel, number)
        os.close(number)


def _reap(_: int, __: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _be_child(channel: socket.socket, number: int) -> None:
    from exporter.outputs.notifications import child

    try:
        channel.close()
        # Plugins may run programs, and wait for them.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _add_oom_score(_CHILD_OOM_SCORE)
        _limit_memory()
        with socket.socket(fileno=number) as stream, stream.makefile("rb") as requests:
            # The number of a signal is written to the socket even during a call into C.
            stream.settimeout(_SILENT_SECONDS)
            signal.set_wakeup_fd(number, warn_on_full_buffer=False)
            signal.signal(signal.SIGPROF, lambda *_: os._exit(1))
            work = child.Child(stream.sendall)
            while line := requests.readline():
                request = protocol.request_of(line)
                _limit_time(protocol.limit(request))
                if not work.process(request) or not select.select([stream], [], [], _GOES_ON_SECONDS)[0]:
                    break
    finally:
        os._exit(0)


def _limit_memory() -> None:
    """Limit the memory of a child, if the system allows it."""
    threading.stack_size(_STACK_BYTES)
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + _MOST_DATA
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _limit_time(seconds: int) -> None:
    """Limit the time of the next request, after which the kernel ends this process.

    SIGPROF tells the exporter why, by `protocol.OUT_OF_TIME`. SIGVTALRM ends a call into C, during which no
    handler runs.
    """
    signal.alarm(seconds)
    signal.setitimer(signal.ITIMER_PROF, protocol.CPU_SECONDS)
    signal.setitimer(signal.ITIMER_VIRTUAL, protocol.CPU_SECONDS + 0.5)


def _add_oom_score(more: int) -> None:
    file = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        file.write_text(str(min(int(file.read_text()) + more, 1000)))
