"""From the configuration to a `Plan`: whatever is wrong with targets or templates is found here."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from exporter import config
from exporter import files as secret_files
from exporter.config import Config, Notifications, Overrides, Templates
from exporter.config.yamlfile import Locate
from exporter.config.yamlnodes import Keys
from exporter.errors import ConfigurationError
from exporter.model.messages import Sender
from exporter.notifications import addresses, checking
from exporter.notifications.addresses import Address
from exporter.notifications.notifier import Plan
from exporter.notifications.routing import effective_routes
from exporter.notifications.sending import AppriseSender
from exporter.notifications.worker import Writes


def load(
    file: Path | None,
    overrides: Overrides,
    urls: Sequence[str],
    environ: Mapping[str, str],
    *,
    senders: Mapping[str, Sender] | None = None,
) -> tuple[Config, Plan]:
    """Read a configuration file, and `plan` what it has of notifications; warn of open files with secrets.

    Raises:
        ConfigurationError: something is wrong; with file and line where there is one.
    """
    settings, locate = config.load_located(file, overrides)
    found = plan(settings.notifications, urls, locate, environ, senders=senders)
    secret_files.warn(addresses.secret_files(settings.notifications, file))
    return settings, found


def plan(
    settings: Notifications,
    urls: Sequence[str],
    locate: Locate,
    environ: Mapping[str, str],
    *,
    senders: Mapping[str, Sender] | None = None,
) -> Plan:
    """Find and check all targets and templates.

    ``urls`` are those of ``--notify``; ``senders`` are targets that need no address. Both get everything.

    Raises:
        ConfigurationError: a target, a route or a template is wrong; with file and line where there is one.
    """
    _check_templates(settings.templates, locate)
    found = checked_addresses(settings, urls, locate, environ)
    given = senders or {}
    extra = (*addresses.names_of_extra(urls), *given)
    ways: dict[str, Callable[[], Sender]] = {
        address.target: partial(AppriseSender, address) for address in found
    }
    ways |= {name: partial(_given, sender) for name, sender in given.items()}
    return Plan(
        routes=effective_routes(settings.routes, [target.name for target in settings.targets], extra),
        senders=ways,
        renderer=_lazily(settings.templates),
        retry_for=settings.retry_for,
    )


def checked_addresses(
    settings: Notifications, urls: Sequence[str], locate: Locate, environ: Mapping[str, str]
) -> tuple[Address, ...]:
    """Find every target's address, and have Apprise look at it.

    Raises:
        ConfigurationError: one cannot be found, or Apprise does not take it.
    """
    found = addresses.resolve(settings, urls, locate, environ)
    places = _places(settings)

    def refuse(address: Address, problem: str) -> ConfigurationError:
        if address.target in places:
            return locate(places[address.target], problem)
        number = found.index(address) - len(settings.targets) + 1
        return ConfigurationError(f"--notify: URL {number}: {problem}")

    checking.check(found, refuse)
    return found


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
        from exporter.notifications import rendering

        rendering.check(templates, locate)


def _lazily(templates: Templates) -> Callable[[], Writes]:
    """Make one renderer for all targets, once it is needed."""

    @cache
    def renderer() -> Writes:
        from exporter.notifications.rendering import Renderer

        return Renderer(templates)

    return renderer


def _given(sender: Sender) -> Sender:
    return sender
