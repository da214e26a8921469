"""Apprise's plugins for an address; only this module and `exporter.notifications.sending` import Apprise.

Apprise with all plugins takes 20 MiB and a third of a second. The exporter imports it with the first message,
and then only the plugins of its targets. A separate process, this module run as a program, determines which
those are, and whether Apprise accepts the addresses.
"""

import contextlib
import importlib
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

import msgspec

from exporter.notifications.addresses import Address

log = logging.getLogger(__name__)

_CHECK_SECONDS = 120.0
# The sender's name in mails and chats, unless the URL has one.
_SENDER = "Azure Scheduled Events"
APPRISE_LOGGER = "apprise"


def plugins(address: Address, storage: Path | None = None) -> list[Any]:
    """Return Apprise's plugin objects for an address; none if Apprise does not accept it.

    ``storage`` is the directory for the data of services with incidents; None keeps it in memory.
    """
    from apprise import Apprise, AppriseAsset, AppriseConfig

    _quieten()
    # Keep requests from replacing a URL's ``Authorization`` header by the ~/.netrc entry of the host.
    os.environ["NETRC"] = os.devnull
    # Without its own time limit Apprise sends on the calling thread, and leaves no thread behind.
    asset = AppriseAsset(
        app_id=_SENDER,
        app_desc=_SENDER,
        async_mode=False,
        service_timeout=0,
        storage_mode="memory" if storage is None else "flush",
        storage_path=None if storage is None else str(storage),
        interpret_emojis=False,
        # A redirect would send the message, and headers with secrets, to another host.
        http_redirects=False,
    )
    if address.plugin is not None:
        only = _plugin(address.url, *address.plugin, asset)
        if only is not None:
            return [only]
    apprise = Apprise(asset=asset)
    if address.apprise_config is None:
        return list(apprise) if apprise.add(address.url) else []
    path, tag = address.apprise_config
    apprise.add(AppriseConfig(paths=path, asset=asset))
    return list(apprise.find(tag=tag))


def _quieten() -> None:
    """Keep records that may contain a URL out of the log."""
    for name in (APPRISE_LOGGER, "paho", "slixmpp"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger(APPRISE_LOGGER).setLevel(logging.WARNING)
    # urllib3's warnings about malformed headers contain the whole URL.
    levels = {"asyncio": logging.WARNING, "requests": logging.WARNING, "urllib3": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, level))


def _plugin(url: str, module: str, name: str, asset: Any) -> Any:
    """Return the plugin of a URL without loading all others, which saves 17 MiB; None if that fails."""
    try:
        kind = getattr(importlib.import_module(module), name)
        return kind(**(kind.parse_url(url) | {"asset": asset}))
    except Exception:  # noqa: BLE001  # Apprise itself is the fallback
        return None


class Answer(msgspec.Struct):
    """Why Apprise does not accept an address, "" if it does, and facts about its services.

    ``not_taken`` is the number of services in the address's Apprise file that Apprise does not accept.
    """

    problem: str = ""
    plugin: tuple[str, str] | None = None
    not_taken: int = 0


def answer(address: Address) -> Answer:
    """Return the result of checking an address with Apprise."""
    found = plugins(address)
    if not found:
        return Answer(_problem(address))
    if address.apprise_config is not None:
        return Answer(not_taken=_not_taken(address.apprise_config[0]))
    return Answer(plugin=_only_plugin(address, found))


def _problem(address: Address) -> str:
    """Return why Apprise does not accept an address, and the remedy."""
    from apprise import Apprise

    if address.apprise_config is not None:
        return "notifications.apprise_config has no service with this tag that Apprise takes; add it there"
    scheme, separator, _ = address.label.partition("://")
    if not separator:
        return "is not a valid URL; write it like mailto://user:password@example.com"
    known = [
        service["enabled"]
        for service in Apprise().details(show_disabled=True)["schemas"]
        if scheme in (*(service["protocols"] or ()), *(service["secure_protocols"] or ()))
    ]
    if not known:
        return f"Apprise knows no service {scheme}://; see the list in its documentation"
    if not known[0]:
        return (
            f"Apprise needs more Python packages for {scheme}://; see the service's page in its documentation"
        )
    return f"Apprise does not take this {scheme}:// URL; see the service's page in its documentation"


def _not_taken(path: str) -> int:
    """Return how many services of a file Apprise does not accept; it logs one error for each."""
    from apprise import AppriseConfig

    errors: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = QueueHandler(errors)
    handler.setLevel(logging.ERROR)
    logger = logging.getLogger(APPRISE_LOGGER)
    logger.addHandler(handler)
    try:
        AppriseConfig(paths=path).services()
    finally:
        logger.removeHandler(handler)
    return errors.qsize()


def _only_plugin(address: Address, found: list[Any]) -> tuple[str, str] | None:
    """Return module and class of the only plugin that an address needs; None if Apprise has to decide.

    That is the case for a URL in the service's own format, ``https://discord.com/api/webhooks/..``, and for
    several URLs in one: the class alone would read them as something else.
    """
    kind = type(found[0])
    alone = _plugin(address.url, kind.__module__, kind.__name__, found[0].asset)
    is_same = len(found) == 1 and alone is not None and alone.url() == found[0].url()
    return (kind.__module__, kind.__name__) if is_same else None


class Checker:
    """Checks addresses with Apprise in a separate process; thread-safe.

    The URLs are passed through a pipe, because other users can read a process's arguments and environment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def refused(self, found: Sequence[Address]) -> list[tuple[Address, str]]:
        """Return the addresses that Apprise does not accept, with the reason; set the plugin of the others.

        If that takes too long, or after `stop`, no address is refused.
        """
        refused = []
        not_taken: dict[str, int] = {}
        for address, found_out in zip(found, self._answers(found), strict=False):
            if found_out.problem:
                refused.append((address, found_out.problem))
            address.plugin = found_out.plugin
            if address.apprise_config is not None and found_out.not_taken:
                not_taken[address.apprise_config[0]] = found_out.not_taken
        for path, count in not_taken.items():
            log.warning(
                "file contains services that Apprise does not accept", extra={"path": path, "count": count}
            )
        return refused

    def stop(self) -> None:
        """End all checks; they refuse no address."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def _answers(self, found: Sequence[Address]) -> list[Answer]:
        """Return an answer for each address, or an empty list."""
        if not found:
            return []
        try:
            return msgspec.json.decode(self._ask(msgspec.json.encode(found)), type=list[Answer])
        except subprocess.TimeoutExpired:
            log.warning(
                "target check timed out; using the targets unchecked", extra={"seconds": _CHECK_SECONDS}
            )
        except (OSError, msgspec.MsgspecError) as error:
            if not self._stopped:
                log.info("checking targets in this process", extra={"reason": type(error).__name__})
                return [answer(address) for address in found]
        return []

    def _ask(self, questions: bytes) -> bytes:
        with self._start() as child:
            try:
                return child.communicate(questions, _CHECK_SECONDS)[0]
            finally:
                with self._lock:
                    self._children.discard(child)
                child.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._stopped:
                raise InterruptedError
            child = subprocess.Popen(  # noqa: S603  # this program itself
                # Without -P a module in the current directory would be run.
                [sys.executable or "", "-P", "-m", __name__],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._children.add(child)
            return child


def _main() -> None:
    """Answer for the addresses on standard input."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # a filter of system calls may forbid it
            os.nice(10)  # the starting exporter has more urgent work
    # Plugins may print; standard output is for the answers.
    out, sys.stdout = sys.stdout, sys.stderr
    addresses = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Address])
    out.write(msgspec.json.encode([answer(address) for address in addresses]).decode())


if __name__ == "__main__":
    _main()
