"""The plan of notifications, from the configuration; mistakes in targets and templates are found here."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from exporter import files as secret_files
from exporter.config import Config, Overrides, Route, Templates, loading, state_directory
from exporter.config.yamlfile import Locate
from exporter.errors import ConfigurationError, Mistakes
from exporter.model.messages import Sender, Writer
from exporter.notifications import addresses, services
from exporter.notifications.addresses import Address
from exporter.notifications.sending import AppriseSender

log = logging.getLogger(__name__)

_STORAGE = "apprise"
_CHECK_SECONDS = 120.0


def _lazy_renderer(templates: Templates, exporter_url: str) -> Callable[[], Writer]:
    """Return what makes one renderer for all targets, once it is needed."""

    @cache
    def renderer() -> Writer:
        from exporter.notifications.rendering import Renderer

        return Renderer(templates, exporter_url)

    return renderer


class DeliveryConfig(NamedTuple):
    """How one target's messages are delivered; the factories are called at the first one.

    Without a sender the target is not configured any more: its messages wait until they are too old.
    """

    sender: Callable[[], Sender] | None
    renderer: Callable[[], Writer]
    retry_for: float


class Plan(NamedTuple):
    """What is sent to which targets, and how; ``retry_for`` and ``watch_after`` are in seconds.

    The factories are called on the workers' threads, at the first message of a target, so that nothing heavy
    is imported before there is something to say.
    """

    routes: Sequence[Route] = ()
    senders: Mapping[str, Callable[[], Sender]] = {}
    renderer: Callable[[], Writer] = _lazy_renderer(Templates(), "")
    retry_for: float = 86400.0
    watch_after: float = 300.0
    watch_targets: Sequence[str] = ()

    def delivery(self, target: str) -> DeliveryConfig:
        """Return how messages to a target are delivered."""
        return DeliveryConfig(self.senders.get(target), self.renderer, self.retry_for)


def effective_routes(routes: Sequence[Route], configured: Sequence[str], extra: Sequence[str]) -> list[Route]:
    """Return the routes that hold: ``extra`` targets get everything, so do configured ones without any."""
    everything = [*([] if routes else configured), *extra]
    return [*routes, *([Route(targets=tuple(everything))] if everything else [])]


class Checker:
    """Checks addresses with Apprise in a process of its own; any thread may use it.

    The URLs go to that process through a pipe, because others can read a process's arguments and environment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def refused(self, found: Sequence[Address]) -> list[tuple[Address, str]]:
        """Return the addresses that Apprise does not take, and why; note in the others which plugin it uses.

        Without time for that, or once stopped, nothing is wrong.
        """
        refused = []
        not_taken: dict[str, int] = {}
        for address, answer in zip(found, self._answers(found), strict=False):
            if answer.problem:
                refused.append((address, answer.problem))
            address.plugin = answer.plugin
            if address.apprise_config is not None and answer.not_taken:
                not_taken[address.apprise_config[0]] = answer.not_taken
        for path, count in not_taken.items():
            log.warning(
                "a file has services that Apprise does not take", extra={"path": path, "count": count}
            )
        return refused

    def stop(self) -> None:
        """End all checks; they find nothing wrong."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def _answers(self, found: Sequence[Address]) -> list[services.Answer]:
        """Return an answer for each address, or none at all."""
        if not found:
            return []
        try:
            return msgspec.json.decode(self._ask(msgspec.json.encode(found)), type=list[services.Answer])
        except subprocess.TimeoutExpired:
            log.warning(
                "targets are used unchecked: the check took too long", extra={"seconds": _CHECK_SECONDS}
            )
        except (OSError, msgspec.MsgspecError) as error:
            if not self._stopped:
                log.info("checking targets in this process", extra={"reason": type(error).__name__})
                return [services.answer(address) for address in found]
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
                # Without -P a module that lies in the current directory would be run.
                [sys.executable or "", "-P", "-m", services.__name__],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._children.add(child)
            return child


Check = Callable[[Checker], None]


def load(
    file: Path | None, overrides: Overrides, urls: Sequence[str], environ: Mapping[str, str]
) -> tuple[Config, Plan]:
    """Read a configuration file, and check targets and templates.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    mistakes = Mistakes()
    settings, plan, check = _read(file, overrides, urls, environ, mistakes)
    with mistakes:
        check(Checker())
    mistakes.check()
    return settings, plan


def read(
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    *,
    senders: Mapping[str, Sender] | None = None,
) -> tuple[Config, Plan, Check]:
    """Read a configuration file; log warnings of what may be wrong.

    The returned function checks targets and templates, as `check` does, which takes seconds on a slow VM.
    ``urls`` are those of ``--notify``; ``senders`` are targets that need no address. Both get everything.
    What services of incidents have to remember is kept in the state directory.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    mistakes = Mistakes()
    result = _read(file, overrides, urls, environ, mistakes, senders=senders, keep_state=True)
    mistakes.check()
    return result


def _read(  # noqa: PLR0913  # what `read` is given, and where mistakes go
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    mistakes: Mistakes,
    *,
    senders: Mapping[str, Sender] | None = None,
    keep_state: bool = False,
) -> tuple[Config, Plan, Check]:
    """Read as `read` does; put what is wrong into ``mistakes``, and leave it out."""
    settings, locate = loading.load_located(file, overrides, mistakes)
    notifications = settings.notifications
    found = addresses.resolve(notifications, urls, locate, environ, mistakes)
    loading.warn(settings, locate)
    secret_files.warn(addresses.secret_files(notifications, file))
    storage = state_directory(settings) / _STORAGE if keep_state else None
    ways: dict[str, Callable[[], Sender]] = {
        address.target: partial(AppriseSender, address, storage=storage) for address in found
    }
    given = senders or {}
    ways |= {name: partial(_same, sender) for name, sender in given.items()}
    extra = (*addresses.names_of_extra(urls), *given)
    plan = Plan(
        routes=effective_routes(
            notifications.routes, [target.name for target in notifications.targets], extra
        ),
        senders=ways,
        renderer=_lazy_renderer(notifications.templates, settings.web.external_url),
        retry_for=notifications.retry_for,
        watch_after=notifications.watch.after,
        watch_targets=tuple(ways) if notifications.watch.targets is None else notifications.watch.targets,
    )
    return settings, plan, partial(check, notifications.templates, found, locate)


def check(templates: Templates, found: Sequence[Address], locate: Locate, checker: Checker) -> None:
    """Check the templates, and every address with Apprise.

    Raises:
        ConfigurationError: a template is wrong, or Apprise does not take an address.
    """
    mistakes = Mistakes()
    if templates != Templates():
        from exporter.notifications import templating

        with mistakes:
            templating.check(templates, locate)
    for address, problem in checker.refused(found):
        with mistakes:
            if address.keys:
                raise locate(address.keys, problem)
            raise ConfigurationError(f"--notify: URL {address.target.removeprefix('notify-')}: {problem}")
    mistakes.check()


def _same(sender: Sender) -> Sender:
    return sender
