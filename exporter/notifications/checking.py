"""Whether Apprise takes the targets' addresses, asked of it in a process of its own.

All of Apprise costs 20 MiB of memory and a third of a second. The exporter does without it until it has
something to say, and then needs the plugins of its targets alone. The URLs go to the child through a pipe,
because others can read a process's arguments and environment.
"""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from exporter.errors import ConfigurationError, Mistakes
from exporter.notifications.addresses import Address

log = logging.getLogger(__name__)

_SECONDS = 120.0

Refusal = Callable[[Address, str], ConfigurationError]


class Checker:
    """Checks addresses, on any thread, until it is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def check(self, addresses: Sequence[Address], refuse: Refusal) -> None:
        """Check every address with Apprise, and note in each which plugin serves it.

        Raises:
            ConfigurationError: what ``refuse`` made of those that it does not take, and why.
        """
        if not addresses:
            return
        not_taken: dict[str, int] = {}
        mistakes = Mistakes()
        for address, answer in zip(addresses, self._answers(addresses), strict=False):
            if answer.problem:
                with mistakes:
                    raise refuse(address, answer.problem)
            address.plugin = answer.plugin
            if address.apprise_config is not None and answer.not_taken:
                not_taken[address.apprise_config[0]] = answer.not_taken
        mistakes.check()
        for path, count in not_taken.items():
            log.warning(
                "a file has services that Apprise does not take", extra={"path": path, "count": count}
            )

    def stop(self) -> None:
        """End all checks; they find nothing wrong."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def _answers(self, addresses: Sequence[Address]) -> "Sequence[_Answer]":
        """Return an answer for each address; none if there was no time for that."""
        questions = [_Question(address.target, address.url, address.apprise_config) for address in addresses]
        try:
            return msgspec.json.decode(self._ask(msgspec.json.encode(questions)), type=list[_Answer])
        except subprocess.TimeoutExpired:
            log.warning("targets are used unchecked: the check took too long", extra={"seconds": _SECONDS})
        except (OSError, msgspec.MsgspecError) as error:
            if not self._stopped:
                log.info("checking targets in this process", extra={"reason": type(error).__name__})
                return [question.answer() for question in questions]
        return []

    def _ask(self, questions: bytes) -> bytes:
        with self._start() as child:
            try:
                return child.communicate(questions, _SECONDS)[0]
            finally:
                with self._lock:
                    self._children.discard(child)
                child.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._stopped:
                raise InterruptedError
            child = subprocess.Popen(  # noqa: S603  # this program itself
                # Without -P a module that lies in the current directory would be run.
                [sys.executable or "", "-P", "-m", __name__],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._children.add(child)
            return child


class _Answer(msgspec.Struct):
    problem: str = ""
    plugin: tuple[str, str] | None = None
    not_taken: int = 0


class _Question(msgspec.Struct):
    target: str
    url: str
    apprise_config: tuple[str, str] | None

    def answer(self) -> _Answer:
        from exporter.notifications import services

        path, tag = self.apprise_config or ("", "")
        address = Address(self.target, url=self.url, apprise_config=path, tag=tag)
        found = services.plugins(address)
        if not found:
            return _Answer(services.problem(address))
        if tag:
            return _Answer(not_taken=services.not_taken(path))
        return _Answer(plugin=services.only_plugin(address, found))


def _main() -> None:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # a filter of system calls may forbid it
            os.nice(10)  # the exporter that has just started has more urgent work
    # Plugins may print; standard output is for the answers.
    out, sys.stdout = sys.stdout, sys.stderr
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[_Question])
    out.write(msgspec.json.encode([question.answer() for question in questions]).decode())


if __name__ == "__main__":
    _main()
