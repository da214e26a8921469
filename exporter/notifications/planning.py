"""From the configuration to a `Plan`: whatever is wrong with targets or templates is found here."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from exporter import config
from exporter import files as secret_files
from exporter.config import Config, Notifications, Overrides, Templates
from exporter.config.yamlfile import Locate
from exporter.config.yamlnodes import Keys
from exporter.errors import ConfigurationError, Mistakes
from exporter.model.messages import Sender
from exporter.notifications import addresses
from exporter.notifications.addresses import Address
from exporter.notifications.checking import Checker
from exporter.notifications.notifier import Plan
from exporter.notifications.ports import Writes
from exporter.notifications.routing import effective_routes
from exporter.notifications.sending import AppriseSender

_STORAGE = "apprise"

Check = Callable[[Checker], None]


def load(
    file: Path | None, overrides: Overrides, urls: Sequence[str], environ: Mapping[str, str]
) -> tuple[Config, Plan]:
    """Read a configuration file, and check targets and templates, too.

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
    """Do as `read`; put what is wrong into ``mistakes``, and leave it out."""
    settings, locate = config.load_located(file, overrides, mistakes)
    found = addresses.resolve(settings.notifications, urls, locate, environ, mistakes)
    config.warn(settings, locate)
    secret_files.warn(addresses.secret_files(settings.notifications, file))
    storage = config.state_directory(settings) / _STORAGE if keep_state else None
    ways: dict[str, Callable[[], Sender]] = {
        address.target: partial(AppriseSender, address, storage=storage) for address in found
    }
    ways |= {name: partial(_given, sender) for name, sender in (senders or {}).items()}
    plan = _plan(settings, (*addresses.names_of_extra(urls), *(senders or {})), ways)
    return settings, plan, partial(check, settings.notifications, found, locate)


def _plan(settings: Config, extra: Sequence[str], ways: Mapping[str, Callable[[], Sender]]) -> Plan:
    """Return the plan; ``extra`` names the targets that get everything, whatever the routes."""
    notifications = settings.notifications
    targets = [target.name for target in notifications.targets]
    return Plan(
        routes=effective_routes(notifications.routes, targets, extra),
        senders=ways,
        renderer=_lazily(notifications.templates, settings.web.external_url),
        retry_for=notifications.retry_for,
        watch_after=notifications.watch.after,
        watch_targets=tuple(ways) if notifications.watch.targets is None else notifications.watch.targets,
    )


def check(settings: Notifications, found: Sequence[Address], locate: Locate, checker: Checker) -> None:
    """Try the templates, and have Apprise look at every target's address.

    Raises:
        ConfigurationError: a template is wrong, or Apprise does not take an address.
    """
    mistakes = Mistakes()
    with mistakes:
        _check_templates(settings.templates, locate)
    places = _places(settings)

    def refuse(address: Address, problem: str) -> ConfigurationError:
        if address.target in places:
            return locate(places[address.target], problem)
        number = address.target.removeprefix("notify-")
        return ConfigurationError(f"--notify: URL {number}: {problem}")

    with mistakes:
        checker.check(found, refuse)
    mistakes.check()


def _places(settings: Notifications) -> dict[str, Keys]:
    """Return the key of the configuration file that holds each target's address."""
    return {
        target.name: ("notifications", "targets", index, key)
        for index, target in enumerate(settings.targets)
        for key in ("url", "url_file", "tag")
        if getattr(target, key)
    }


def _check_templates(templates: Templates, locate: Locate) -> None:
    if templates != Templates():
        from exporter.notifications import templating

        templating.check(templates, locate)


def _lazily(templates: Templates, exporter_url: str) -> Callable[[], Writes]:
    """Make one renderer for all targets, once it is needed."""

    @cache
    def renderer() -> Writes:
        from exporter.notifications.rendering import Renderer

        return Renderer(templates, exporter_url)

    return renderer


def _given(sender: Sender) -> Sender:
    return sender
