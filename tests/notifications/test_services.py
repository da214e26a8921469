"""Tests with the services that people use: mail, and chat behind a local TLS proxy, by Apprise as it is."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from exporter.config import Notifications, Templates
from exporter.config.yamlfile import error_without_file
from exporter.errors import Mistakes
from exporter.model.lifecycle import Transition
from exporter.model.messages import Message, TextFormat
from exporter.notifications.addresses import Address, resolve
from exporter.notifications.planning import check
from exporter.notifications.rendering import Renderer
from exporter.notifications.sending import AppriseSender
from exporter.notifications.services import Checker
from tests.builders import REBOOT_ID
from tests.clocks import NOW
from tests.notifications.messages import message
from tests.notifications.receivers import Received, TlsProxy, mail_receiver

SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/"
TELEGRAM = "tgram://123456789:ABCdefghijklmnopqrstuvwxyz123456789/12345"
DISCORD = "discord://123456789012345678/" + "a" * 68
TEAMS = "workflows://prod-1.logic.azure.com:443/643e69f83c8944/signature12345678901234567890/"
PAGERDUTY = "pagerduty://" + "0123456789abcdef" * 2 + "@12345678901234567890"
SERVICES = {"slack": SLACK, "telegram": TELEGRAM, "discord": DISCORD, "teams": TEAMS, "pagerduty": PAGERDUTY}
ANSWERS = {
    "hooks.slack.com": (200, b"ok"),
    "api.telegram.org": (200, b'{"ok": true, "result": {"message_id": 1}}'),
    "discord.com": (204, b""),
    "prod-1.logic.azure.com": (202, b""),
    "events.pagerduty.com": (202, b"{}"),
}
HOSTILE = '<b>bold</b> & "quoted" *_`x`_* [a](http://evil.test) @everyone <!channel> {{ 7919 * 7919 }}'
FORMATS: tuple[TextFormat, ...] = ("markdown", "text", "html")


@cache
def checked(url: str) -> Address:
    """Return the address as the program has it once it is checked, which takes a process."""
    (found,) = addresses = resolve(Notifications(), [url], error_without_file, {}, Mistakes())
    check(Templates(), Checker().refused(addresses), error_without_file)
    return found


def address_of(url: str) -> Address:
    """Return the address of a URL whose plugin is known."""
    found = checked(url)
    assert found.plugin is not None
    return found


def deliver(url: str, told: Message, text_format: TextFormat = "markdown") -> None:
    """Render and send a message as a worker does."""
    sender = AppriseSender(address_of(url))
    rendered = Renderer(Templates(format=text_format)).render(told, NOW, limit=sender.body_limit)
    delivery = sender.send(rendered)
    assert delivery.delivered, delivery.reason


def texts(requests: list[Received]) -> str:
    """Return all text that arrived, JSON's and Markdown's escapes undone."""

    def leaves(value: Any) -> Iterator[str]:
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from leaves(inner)
        else:
            yield str(value)

    text = "\n".join("\n".join(leaves(json.loads(request.body))) for request in requests)
    return re.sub(r"\\([^\w\s])", r"\1", text)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", SERVICES)
def test_the_message_tells_the_truth(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """Every service gets what happened, to which VM, and the event's id, whatever format was chosen."""
    deliver(SERVICES[service], message(), text_format)
    assert len(proxy.requests) == 1
    found = texts(proxy.requests)
    for fact in ("Reboot", "scheduled", "vm_0", REBOOT_ID, "22:15:00 UTC", "WARNING"):
        assert fact in found


WORKFLOW = "https://prod-1.logic.azure.com:443/workflows/643e69f83c8944/triggers/manual/paths/invoke"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"https://discord.com/api/webhooks/123456789012345678/{'a' * 68}", "123456789012345678/" + "a" * 68),
        (f"{WORKFLOW}?api-version=2016-06-01&sig=signature12345678901234567890", "643e69f83c8944/triggers/"),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "T1JJ3T3L2/A1BRT"),
        (f"{SLACK} {DISCORD}", "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"),
    ],
)
def test_urls_as_the_services_show_them(proxy: TlsProxy, url: str, path: str) -> None:
    """What people copy from the service's own page goes where it leads, and so do two URLs in one."""
    sender = AppriseSender(checked(url))
    assert sender.send(Renderer(Templates()).render(message(), NOW, limit=sender.body_limit)).delivered
    assert len(proxy.requests) == 1 + (" " in url)
    assert any(path in request.path for request in proxy.requests)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", SERVICES)
def test_what_azure_says_is_no_markup(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """A description cannot mention users, create links or be evaluated."""
    deliver(SERVICES[service], message(description=HOSTILE), text_format)
    found = texts(proxy.requests)
    if service == "slack" or proxy.requests[0].json.get("parse_mode") == "HTML":
        assert "<b>bold" not in found
    assert "@everyone" not in found
    assert "<!channel>" not in found
    assert "62710561" not in found
    assert '<a href="http://evil.test"' not in found


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", SERVICES)
def test_long_messages_are_cut_not_refused(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """What a service does not take whole arrives as far as it takes it, and says that it was cut.

    Where escapes make it longer again, Apprise sends what is left as further messages.
    """
    many = tuple(f"vm_{number:04}_of_a_rather_long_name" for number in range(2000))
    long = Templates(format=text_format, body="{{ event.id }}\n{{ event.resources | join(' ') }}")
    sender = AppriseSender(address_of(SERVICES[service]))
    rendered = Renderer(long).render(message(resources=many), NOW, limit=sender.body_limit)
    assert sender.send(rendered).delivered
    assert len(proxy.requests) <= 3
    assert REBOOT_ID in texts(proxy.requests)
    assert "cut" in texts(proxy.requests)


def test_severity_reaches_pagerduty_and_slack(proxy: TlsProxy) -> None:
    """Where a service knows severities it gets the right one."""
    deliver(PAGERDUTY, message(Transition.STARTED))
    assert proxy.requests[0].json["payload"]["severity"] in ("critical", "error")
    deliver(PAGERDUTY, message(Transition.SCHEDULED))
    assert proxy.requests[1].json["payload"]["severity"] == "warning"


@pytest.mark.parametrize("text_format", FORMATS)
def test_mail(text_format: TextFormat) -> None:
    """A mail has the title as its subject, and all of the body in its text."""
    with mail_receiver() as mailbox:
        url = f"mailto://127.0.0.1:{mailbox.port}/?from=azse@example.com&to=ops@example.com"
        deliver(url, message(description="Größe <b>&"), text_format)
    (mail,) = mailbox.mails
    assert mail["subject"] == "[WARNING] Reboot scheduled: vm_0 in 15 min"
    assert mail["to"] == "ops@example.com"
    assert mail["x-application"] == "Azure Scheduled Events"
    plain = mail.get_body(("plain",))
    html = mail.get_body(("html",))
    assert plain is not None
    for fact in ("vm_0", REBOOT_ID, "22:15:00 UTC", "Größe"):
        assert fact in plain.get_content()
    if html is not None:
        assert REBOOT_ID in html.get_content()
        assert "<b>" not in html.get_content().replace("<b>This", "")


LOADED = """
import sys
from exporter.config import Notifications
from exporter.notifications import addresses, services
from exporter.config.yamlfile import error_without_file
from exporter.errors import Mistakes
(address,) = found = addresses.resolve(Notifications(), [sys.argv[1]], error_without_file, {}, Mistakes())
assert services.Checker().refused(found) == []
from exporter.notifications.sending import open_services
(service,) = open_services(address, None)
print(service.name, sum(name.startswith("apprise.plugins.") for name in sys.modules) < 20)
"""


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (SLACK, "Slack"),
        (TELEGRAM, "Telegram"),
        (DISCORD, "Discord"),
        (PAGERDUTY, "Pager Duty"),
        ("json://127.0.0.1/?rto=3", "JSON"),
        ("mailto://user:pass@example.com", "E-Mail"),
        ("ntfys://127.0.0.1/topic", "ntfy"),
    ],
)
def test_one_service_is_loaded_alone(url: str, name: str) -> None:
    """Two hundred plugins cost 17 MiB; a target needs its own."""
    command = [sys.executable, "-W", "ignore", "-c", LOADED, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{name} True"
