"""Tests with the services that people use: mail, and chat behind a local TLS proxy, by Apprise as it is."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from apprise import Apprise
from msgspec.structs import replace

from exporter.config import Templates
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import Delivery, Failure, Message, TextFormat
from exporter.model.views import ApprovalView
from exporter.model.vm import VirtualMachine
from exporter.outputs.notifications.child import Child
from exporter.outputs.notifications.fitting import CUT
from exporter.outputs.notifications.services import Service
from tests.builders import REBOOT_ID, WEB_VM, message
from tests.http_server import Request
from tests.outputs.notifications.sending import EXPORTER_URL, send
from tests.receivers import Receiver, TlsProxy, mail_receiver

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
    "api.pushover.net": (200, b'{"status": 1}'),
    "ntfy.sh": (200, b"{}"),
    "api.twilio.com": (201, b"{}"),
    "api.d7networks.com": (200, b"{}"),
    "mattermost.test": (200, b"ok"),
    "sns.us-east-1.amazonaws.com": (200, b"<a/>"),
}
HOSTILE = '<b>bold</b> & "quoted" *_`x`_* [a](http://evil.test) @everyone <!channel> {{ 7919 * 7919 }}'
FORMATS: tuple[TextFormat, ...] = ("markdown", "text", "html")


def deliver(url: str, told: Message, text_format: TextFormat = "markdown") -> None:
    templates = Templates(format=text_format)
    delivery = send(told, url, templates=templates, exporter_url="https://vm_0.example.com/")
    assert delivery.delivered, delivery.reason


def texts(requests: list[Request]) -> str:
    """Return all text that arrived, JSON's and Markdown's escapes undone."""

    def leaves(value: Any) -> Iterator[str]:
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from leaves(inner)
        else:
            yield str(value)

    text = "\0".join("\0".join(leaves(json.loads(request.body))) for request in requests)
    return re.sub(r"\\([^\w\s])", r"\1", text)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", SERVICES)
def test_the_message_tells_the_truth(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """Every service gets all facts in every format, and a description that is text and nothing else."""
    deliver(SERVICES[service], message(description=HOSTILE), text_format)
    assert len(proxy.requests) == 1
    found = texts(proxy.requests)
    for fact in ("Reboot", "scheduled", "vm_0", REBOOT_ID, "22:15:00 UTC", "WARNING"):
        assert fact in found
    is_html = service == "slack" or proxy.requests[0].json.get("parse_mode") == "HTML"
    assert not (is_html and "<b>bold" in found)
    for markup in ("@everyone", "<!channel>", "62710561", '<a href="http://evil.test"'):
        assert markup not in found


GONE = "the address does not exist, or no longer: create a new one in the service, and set it as the URL"
SLACK_BOT = "slack://xoxb-1234-1234-4ddbc191d40ee098cbaae6f3523ada2d/#general"
PUSHOVER = f"pover://{'u' * 30}@{'t' * 30}"


UNAUTHORIZED = "it does not accept the credentials: correct those in the target's URL"
FORBIDDEN = "it forbids this: correct the credentials in the target's URL, or what the service lets them do"
# The URL and its host, the answer's status and body, and the reason.
REFUSALS: list[tuple[str, str, int, bytes, str]] = [
    (SLACK_BOT, "slack.com", 200, b'{"ok": false, "error": "not_in_channel"}', "200 (OK): not_in_channel"),
    (SLACK, "hooks.slack.com", 404, b"no_service", f"404 (Not Found): no_service; {GONE}"),
    (SLACK, "hooks.slack.com", 502, b"<html>Bad gateway</html>", "502 (Bad Gateway)"),
    (
        *(TEAMS, "prod-1.logic.azure.com", 401),
        b'{"error":{"code":"DirectApi","message":"The key is\\nwrong."}}',
        f"401 (Unauthorized): The key is wrong; {UNAUTHORIZED}",
    ),
    (
        *(PAGERDUTY, "events.pagerduty.com", 400),
        b'{"message": "Event object is invalid", "errors": ["\'dedup\' is"]}',
        "400 (Bad Request): Event object is invalid: 'dedup' is",
    ),
    (
        *(DISCORD, "discord.com", 403),
        b'{"message": "Missing\\u001b[31m Access to ' + b"a" * 68 + b'", "code": 50001}',
        f"403 (Forbidden): Missing [31m Access to ...; {FORBIDDEN}",
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_reason_of_the_receiver_is_told(
    proxy: TlsProxy, monkeypatch: pytest.MonkeyPatch, refusal: tuple[str, str, int, bytes, str]
) -> None:
    """In its own words, cleaned, with what to do about it where that is known."""
    url, host, status, body, reason = refusal
    monkeypatch.setitem(proxy.answers, host, (status, body))
    assert send(message(), url).reason == f"it answered {reason}"


DIRECT = "/powerautomate/automations/direct"
POWER = f"default0123456789ab.cd.environment.api.powerplatform.com:443{DIRECT}"
INVOKE = (
    "/workflows/0a1b2c3d4e5f/triggers/manual/paths/invoke"
    "?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=aB3-_dEfGhIjKlMnOpQrStUvWxYz0123456789abcde"
)
WORKFLOW = "https://prod-1.logic.azure.com:443/workflows/643e69f83c8944/triggers/manual/paths/invoke"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (f"https://discord.com/api/webhooks/123456789012345678/{'a' * 68}", "123456789012345678/" + "a" * 68),
        (f"{WORKFLOW}?api-version=2016-06-01&sig=signature12345678901234567890", "643e69f83c8944/triggers/"),
        *((f"https://{POWER}{cu}{INVOKE}", f"{DIRECT}{cu}{INVOKE}") for cu in ("", "/cu/26")),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "T1JJ3T3L2/A1BRT"),
        (f"{SLACK} {DISCORD}", "T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"),
    ],
)
def test_urls_as_the_services_show_them(proxy: TlsProxy, url: str, path: str) -> None:
    """What people copy from the service's own page goes where it leads, and so do two URLs in one."""
    deliver(url, message())
    assert len(proxy.requests) == 1 + (" " in url)
    assert any(path in request.path for request in proxy.requests)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", [name for name in SERVICES if name != "pagerduty"])
def test_long_messages_are_cut_not_refused(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """What a service does not take whole arrives as far as it takes it, as one message that says so."""
    many = tuple(f"vm_{number:04}_of_a_rather_long_name" for number in range(2000))
    long = Templates(format=text_format, body="{{ event.id }}\n{{ event.resources | join(' ') }}")
    assert send(message(resources=many), SERVICES[service], templates=long).delivered
    assert len(proxy.requests) == 1
    assert REBOOT_ID in texts(proxy.requests)
    assert CUT in texts(proxy.requests)


# With the characters that Apprise's plugin sends in a request, without the title if it has a field for it.
SMALL = {
    "pushover": (f"pover://{'u' * 30}@{'t' * 30}", 1024),
    "teams": (TEAMS, 1000),
    "discord": (DISCORD, 2000),
    "telegram": (TELEGRAM, 4096),
    "ntfy": ("ntfys://ntfy.sh/topic", 7800),
    "twilio": (f"twilio://AC{'a' * 32}:{'b' * 32}@15551231234/15551231235", 160),
    "d7": ("d7sms://token@15551231234", 160),
    "sns": (f"sns://AKIAABCDEFGHIJKLMNOP/{'k' * 40}/us-east-1/15551231234", 160),
}
LINKS = ("https://portal.azure.com/", "https://vm-0.example.com:9843/", "alerts/runbooks/Scheduled")


def told(request: Request) -> str:
    """Return the longest text of a request, which is the body."""
    if request.body[:1] != b"{":
        return max((text for _, text in parse_qsl(request.body.decode())), key=len)
    return max(texts([request]).split("\0"), key=len)


@pytest.mark.parametrize("text_format", FORMATS)
@pytest.mark.parametrize("service", SMALL)
def test_a_message_is_one_request(proxy: TlsProxy, service: str, text_format: TextFormat) -> None:
    """Each arrives with its event and, where there is room, all links and what to do; the rest gives way."""
    url, limit = SMALL[service]
    templates, child = Templates(format=text_format), Child(lambda _: None)
    long = "Größe & <b>: the host is being repaired, and " * 12
    waits = ApprovalView("hold", None, "no rule matches")
    sent = [
        *(
            message(transition, type="Redeploy", vm=WEB_VM)
            for transition in (Transition.STARTED, Transition.UPDATED)
        ),
        message(description=long, approval=waits, vm=WEB_VM),
        message(Transition.HOOK_FAILED, detail=long, vm=WEB_VM),
    ]
    for number, one in enumerate(sent, start=1):
        assert send(one, url, child=child, templates=templates, exporter_url=EXPORTER_URL).delivered
        assert len(proxy.requests) == number
        shown = unescape(told(proxy.requests[-1]))
        assert len(told(proxy.requests[-1])) <= limit
        assert one.event.id in shown.replace("\\", "")
        if limit >= 1000:
            assert all(link in shown.replace("\\", "") for link in LINKS)
            assert one.event.approval != waits or "scheduled-events-exporter approve" in shown.replace(
                "\\", ""
            )
        assert (CUT in shown) <= ("Standard_D4s_v5" not in shown)


def test_pagerduty_gets_all_changes(proxy: TlsProxy) -> None:
    """Several facts with one label are one detail."""
    changes = (Change("duration_seconds", None, 9), Change("description", "", "Repair."))
    assert send(message(Transition.UPDATED, changes=changes), PAGERDUTY).delivered
    details = proxy.requests[0].json["payload"]["custom_details"]
    assert details["Changed"] == 'impact unknown duration -> about 9 s; description none -> "Repair."'


def test_pagerduty_gets_what_it_has_fields_for(proxy: TlsProxy) -> None:
    """The headline is the summary, the VM the source, the facts are the details; what the URL says stays."""
    started = message(Transition.STARTED, vm=WEB_VM)
    for url in (PAGERDUTY, f"{PAGERDUTY}/mine/?click=https://own.test/&+Team=ops"):
        assert send(started, url, exporter_url="https://vm-0.example.com/").delivered
    first, second = (request.json for request in proxy.requests)
    payload = first["payload"]
    assert (payload["severity"], payload["source"]) == ("critical", "vm_0")
    assert payload["summary"] == "[CRITICAL] Reboot started: vm_0 at 22:00 UTC"
    assert payload["custom_details"]["Event"] == f"Reboot {REBOOT_ID}"
    assert first["links"] == [{"href": "https://vm-0.example.com/"}]
    assert (second["payload"]["source"], second["links"]) == ("mine", [{"href": "https://own.test/"}])
    assert second["payload"]["custom_details"]["Team"] == "ops"


FIVE = ["-1", "-1", "0", "1"]
# Pushsafer's field is "pr".
PRIORITY = re.compile(r"""pr(?:iority)?['"]?[=:] ?['"]?(-?\w+)""")


@pytest.mark.parametrize(
    ("url", "priorities"),
    [
        *((f"{scheme}://{'a' * 32}", FIVE) for scheme in ("join", "psafers")),
        *((PUSHOVER, FIVE), (f"prowl://{'a' * 40}", FIVE)),
        ("gotify://{}/token", ["1", "1", "5", "8"]),
        ("gotify://{}/token?priority=low", ["0"] * 4),
        ("ntfy://{}/topic", ["low", "low", "high", "max"]),
        # What is silent opens no alert.
        *(
            (f"{scheme}://01234567-89ab-cdef-0123-456789abcdef", ["P3", "P1"])
            for scheme in ("opsgenie", "jira")
        ),
        ("smseagle://token@{}/11111111111", ["0", "0", "0", "1"]),
    ],
)
def test_severity_sets_the_priority(
    proxy: TlsProxy, receiver: Receiver, url: str, priorities: list[str]
) -> None:
    """Of a service that has priorities, unless the URL has one."""
    child = Child(lambda _: None)
    for told in (
        message(type="Freeze"),
        message(Transition.COMPLETED),
        message(),
        message(Transition.STARTED),
    ):
        send(told, url.format(receiver.authority), child=child)
    sent = [
        f"{request.headers} {request.path} {request.body.decode()}"
        for request in proxy.requests + receiver.requests
    ]
    assert [found[1] for one in sent if (found := PRIORITY.search(one))] == priorities


def test_mails_of_an_event_are_a_thread() -> None:
    """All refer to the same id; mail programs show the priority."""
    with mail_receiver() as mailbox:
        url = f"mailto://127.0.0.1:{mailbox.port}/?from=azse@example.com&to=ops@example.com"
        child = Child(lambda _: None)
        for transition in (Transition.SCHEDULED, Transition.STARTED):
            told = replace(message(transition), incident=f"{REBOOT_ID}/vm_0")
            assert send(told, url, child=child).delivered
    first, second = mailbox.mails
    thread = f"<{REBOOT_ID}/vm_0@scheduled-events.invalid>"
    assert first["references"] == second["references"] == thread
    assert (first["importance"], second["importance"], second["x-priority"]) == ("normal", "high", "1")


@pytest.mark.parametrize(
    ("reply", "reason", "failure"),
    [
        ("554 Message\trejected", "it answered 554: Message rejected", Failure.REFUSED),
        ("451 Try later", "it answered 451: Try later", Failure.TARGET),
    ],
)
def test_a_mail_server_refuses_the_content(reply: str, reason: str, failure: Failure) -> None:
    """A permanent refusal concerns the message; a temporary one does not."""
    with mail_receiver() as mailbox:
        mailbox.reply = reply
        url = f"mailto://127.0.0.1:{mailbox.port}/?from=azse@example.com&to=ops@example.com"
        assert send(message(), url) == Delivery(False, reason, failure)


@pytest.mark.parametrize("text_format", FORMATS)
def test_mail(text_format: TextFormat) -> None:
    """A mail has the title as its subject, and its part in plain text has a line for each fact.

    A link is its words, and the address in a mail of plain text alone.
    """
    with mail_receiver() as mailbox:
        url = f"mailto://127.0.0.1:{mailbox.port}/?from=azse@example.com&to=ops@example.com"
        deliver(url, message(description="Größe <b>&"), text_format)
    (mail,) = mailbox.mails
    assert mail["subject"] == "[WARNING] Reboot scheduled: vm_0 at 22:15 UTC (15 min)"
    assert mail["to"] == "ops@example.com"
    assert mail["x-application"] == "Azure Scheduled Events"
    plain = mail.get_body(("plain",))
    html = mail.get_body(("html",))
    assert plain is not None
    link = "Exporter: https://vm_0.example.com/" if text_format == "text" else "Exporter"
    for fact in ("This VM: vm_0", f"Event: Reboot {REBOOT_ID}", link):
        assert ("" if text_format == "text" else "- ") + fact in plain.get_content().splitlines()
    assert plain.get_content().strip().splitlines().count("") == 1
    assert "22:15:00 UTC" in plain.get_content()
    assert "Größe" in plain.get_content()
    if html is not None:
        assert REBOOT_ID in html.get_content()
        assert "<b>" not in html.get_content().replace("<b>This", "")
        assert '<a href="https://vm_0.example.com/">Exporter</a>' in html.get_content()


def test_a_title_that_teams_cuts_is_in_the_body(proxy: TlsProxy) -> None:
    """The plugin does not wrap the title of a card, so it is the first, bold line of the body."""
    deliver(TEAMS, message())
    (block,) = proxy.requests[0].json["attachments"][0]["content"]["body"][-1:]
    title, explanation, *_ = block["text"].split("\n\n")
    assert title == "**[WARNING] Reboot scheduled: vm_0 at 22:15 UTC (15 min)**"
    assert explanation == "The VM reboots. Non-persistent memory is lost."
    assert block["wrap"]
    assert "title" not in [
        one.get("id") for one in proxy.requests[0].json["attachments"][0]["content"]["body"]
    ]


LINKED = {
    "slack": "<https://vm_0.example.com/|Exporter>",
    "discord": "[Exporter](https://vm_0.example.com/)",
    "teams": "[Exporter](https://vm_0.example.com/)",
    "telegram": "[Exporter](https://vm_0.example.com/)",
    "mattermost": "Exporter: <https://vm_0.example.com/>",
}


@pytest.mark.parametrize("service", LINKED)
def test_links_are_words(proxy: TlsProxy, service: str) -> None:
    """The exporter's page is a link in the service's own markup; where there is none, its address."""
    url = SERVICES.get(service, "mmosts://mattermost.test/3ccdd113474722377935511fc85d3dd4")
    own = Templates(title="Reboot")
    short = replace(message(description="", resources=()), vm=VirtualMachine())
    assert send(short, url, templates=own, exporter_url="https://vm_0.example.com/").delivered
    assert LINKED[service] in told(proxy.requests[0]).replace("\\", "")


@pytest.mark.parametrize(
    ("url", "connect", "read", "overflow"),
    [
        ("ntfy://host.test/topic", 5, 30, "truncate"),
        ("json://host.test/?cto=1&rto=2&overflow=split&retry=3", 1, 2, "split"),
        ("mailto://host.test/?from=a@a.test&to=b@b.test", 60, 60, "truncate"),
    ],
)
def test_what_the_url_says_comes_first(url: str, connect: float, read: float, overflow: str) -> None:
    """A slow receiver is waited for, as it may have the message, unless the URL says otherwise."""
    plugin: Any = Apprise.instantiate(url)
    Service(plugin, url)
    assert (plugin.socket_connect_timeout, plugin.socket_read_timeout) == (connect, read)
    assert plugin.overflow_mode == overflow
    assert (plugin.request_rate_per_sec, plugin.retry) == (0, 0)
