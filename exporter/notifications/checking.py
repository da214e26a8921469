"""Whether Apprise takes the targets' addresses, asked of it in a process of its own.

All of Apprise costs 20 MiB of memory and a third of a second. The exporter does without it until it has
something to say, and then needs the plugins of its targets alone. The URLs go to the child through a pipe,
because others can read a process's arguments and environment.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import msgspec

from exporter.errors import ConfigurationError
from exporter.notifications.addresses import Address

log = logging.getLogger(__name__)

_SECONDS = 30.0

Refusal = Callable[[Address, str], ConfigurationError]


def check(addresses: Sequence[Address], refuse: Refusal) -> None:
    """Check every address with Apprise, and note in each which plugin serves it.

    Raises:
        ConfigurationError: what ``refuse`` made of the first that it does not take, and why.
    """
    if not addresses:
        return
    not_taken: dict[str, int] = {}
    for address, answer in zip(addresses, _answers(addresses), strict=True):
        if answer.problem:
            raise refuse(address, answer.problem)
        address.plugin = answer.plugin
        if address.apprise_config is not None and answer.not_taken:
            not_taken[address.apprise_config[0]] = answer.not_taken
    for path, count in not_taken.items():
        log.warning("a file has services that Apprise does not take", extra={"path": path, "count": count})


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


def _answers(addresses: Sequence[Address]) -> Sequence[_Answer]:
    questions = [_Question(address.target, address.url, address.apprise_config) for address in addresses]
    try:
        done = subprocess.run(  # noqa: S603  # this program itself
            # Without -P a module that lies in the current directory would be run.
            [sys.executable or "", "-P", "-m", __name__],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            input=msgspec.json.encode(questions),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=list[_Answer])
    except (OSError, msgspec.MsgspecError, subprocess.SubprocessError) as error:
        log.info("checking targets in this process", extra={"reason": type(error).__name__})
        return [question.answer() for question in questions]


def _main() -> None:
    # Plugins may print; standard output is for the answers.
    out, sys.stdout = sys.stdout, sys.stderr
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[_Question])
    out.write(msgspec.json.encode([question.answer() for question in questions]).decode())


if __name__ == "__main__":
    _main()
