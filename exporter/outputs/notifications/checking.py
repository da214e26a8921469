"""The check of targets and templates of a configuration, by the process that will use them."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exporter import files
from exporter.config import Templates
from exporter.config.addresses import Address, variables
from exporter.config.loading import Loaded
from exporter.config.yamlfile import Keys, dotted
from exporter.errors import Mistakes
from exporter.outputs.notifications.planning import Plan, plan_of, webhook_templates
from exporter.outputs.notifications.protocol import Checked, CheckTarget, CheckTemplate, Request
from exporter.outputs.notifications.sender import MOST_ATTEMPTS, SenderProcess, environment

log = logging.getLogger(__name__)

_UNCHECKED = "cannot be checked"
_GAP_REMEDY = "such messages are sent with the built-in text; put {% if %} around what may be missing"


def check(loaded: Loaded, plan: Plan, sender: SenderProcess, mistakes: Mistakes) -> None:
    """Check templates and targets; the plan knows how to send to the targets then.

    Mistakes are an invalid template, or an address that Apprise does not accept. What could not be checked is
    logged.
    """
    # Of targets with the same name, each is checked.
    asked = [
        address for address in loaded.addresses["notifications"] if address.url or address.apprise_config
    ]
    results = list(zip(asked, _checked(sender, map(CheckTarget, asked)), strict=True))
    for address, checked in results:
        if checked.problem:
            mistakes.problems += loaded.error(address, checked.problem).problems
        elif checked.failure:
            what = {"what": f"target {address.target}", "reason": checked.failure}
            log.warning(_UNCHECKED, extra=what)
        plan.incidents[address.target] = checked.incidents
        if not checked.failure:
            plan.mails[address.target] = checked.is_mail
        if address.apprise_config is not None:
            plan.services[address.target] = checked.services
    _check_templates(loaded, sender, mistakes)
    _warn(loaded, results)


def _warn(loaded: Loaded, results: Sequence[tuple[Address, Checked]]) -> None:
    """Log what is doubtful about targets."""
    files.warn(Path(name) for _, checked in results for name in checked.included)
    for address, checked in results:
        for doubt in checked.doubts:
            log.warning("unknown parameter", extra={"problem": str(loaded.error(address, doubt))})
    not_taken = {
        address.apprise_config[0]: checked.not_taken for address, checked in results if address.apprise_config
    }
    for path, count in not_taken.items():
        if count:
            extra = {"path": path, "count": count}
            log.warning("file contains services that Apprise does not accept", extra=extra)


@contextlib.contextmanager
def opened(
    loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes
) -> Iterator[tuple[Plan, SenderProcess]]:
    """Check targets and templates, and lend the process that did; errors are added to ``mistakes``."""
    plan, sender = plan_of(loaded), SenderProcess(environment(environ, variables(loaded.config)))
    try:
        check(loaded, plan, sender, mistakes)
        yield plan, sender
    finally:
        sender.stop()


def _checked(sender: SenderProcess, requests: Iterable[Request]) -> list[Checked]:
    """Return the results of checks, several of which are made at once."""
    with ThreadPoolExecutor(MOST_ATTEMPTS, thread_name_prefix="check targets") as pool:
        answers = list(pool.map(sender.ask, requests))
    return [answer if isinstance(answer, Checked) else Checked(failure=answer.reason) for answer in answers]


def _check_templates(loaded: Loaded, sender: SenderProcess, mistakes: Mistakes) -> None:
    notifications = loaded.config.notifications
    places: dict[Keys, Templates] = {("notifications", "templates"): notifications.templates}
    for index, target in enumerate(notifications.targets):
        if target.templates is not None:
            templates = webhook_templates(target.templates) if target.webhook else target.templates
            places["notifications", "targets", index, "templates"] = templates
    asked = {
        (*place, key): CheckTemplate(key, templates)
        for place, templates in places.items()
        for key in ("title", "body")
        if getattr(templates, key).strip()
    }
    for keys, checked in zip(asked, _checked(sender, asked.values()), strict=True):
        if checked.problem:
            mistakes.problems += loaded.file.error(keys, checked.problem).problems
        elif checked.failure:
            log.warning(_UNCHECKED, extra={"what": dotted(keys), "reason": checked.failure})
        elif checked.gap:
            extra = {"key": dotted(keys), "reason": checked.gap, "remedy": _GAP_REMEDY}
            log.warning("template fails for events with missing values", extra=extra)
