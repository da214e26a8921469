"""The section `alertmanager` of the configuration: its checks and its addresses."""

import re
from collections.abc import Iterator, Mapping

from exporter.clock import Clock
from exporter.config import Alertmanager, Config, http_url
from exporter.config.addresses import Address, expanded, without_credentials
from exporter.config.checks import Fault, headers, never, without_transitions
from exporter.config.loading import Loaded
from exporter.config.match import Scope
from exporter.config.yamlfile import Keys, YamlFile, dotted
from exporter.errors import Mistakes
from exporter.outputs.alertmanager.alerts import OWN_LABELS
from exporter.outputs.alertmanager.client import AlertmanagerError, Client
from exporter.outputs.output import Diagnosis, Level, Section

# The name of the only Alertmanager, of several with numbers, and of all of them in metrics.
ALERTMANAGER = "alertmanager"
_API_PATH = "/api/v2"
_HERE: Keys = ("alertmanager",)


class AlertmanagerSection(Section):
    def faults(self, config: Config, file: YamlFile) -> Iterator[Fault]:
        settings = config.alertmanager
        yield from headers(_HERE, settings.headers)
        yield from without_transitions((*_HERE, "match"), settings.match)
        if settings.match.target is Scope.OTHER:
            fault = '"other" never applies: alerts are about events that affect this VM; remove the key'
            yield (*_HERE, "match", "target"), fault
        for name, value in settings.labels.items():
            if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name):
                yield (*_HERE, "labels", name), "is not a valid name of a label; use letters, digits and _"
            elif name in OWN_LABELS:
                yield (*_HERE, "labels", name), "is set by the exporter; choose another name"
            elif not value:
                yield (*_HERE, "labels", name), "is empty, which is the same as no label; remove the label"

    def advice(self, config: Config) -> Iterator[Fault]:
        if reason := never(config.alertmanager.match, config):
            yield (*_HERE, "match"), f"nothing matches: {reason}"
        if not config.alertmanager.urls and config.alertmanager != Alertmanager():
            yield _HERE, "no URL is set, so no alert is posted"

    def addresses(
        self, loaded: Loaded, environ: Mapping[str, str], mistakes: Mistakes
    ) -> tuple[Address, ...]:
        """Return the address of each Alertmanager; add errors to ``mistakes``, without any secret."""
        settings, file = loaded.config.alertmanager, loaded.file
        sent, resolved = {}, dict[str, Address]()
        for name, text in settings.headers.items():
            with mistakes:
                sent[name] = expanded(text, (*_HERE, "headers", name), file, environ)
        has_authorization = any(name.lower() == "authorization" for name in sent)
        for index, text in enumerate(settings.urls):
            keys = (*_HERE, "urls", index)
            with mistakes:
                url = expanded(text, keys, file, environ).rstrip("/")
                if fault := _fault(url, has_authorization=has_authorization):
                    raise file.error(keys, fault)
                place = without_credentials(url)
                if place in resolved:
                    raise file.error(keys, f"is the same as {dotted(resolved[place].keys)}; keep one")
                number = f"-{index + 1}" if len(settings.urls) > 1 else ""
                resolved[place] = Address(f"{ALERTMANAGER}{number}", url, headers=sent, keys=keys)
        return tuple(resolved.values())

    def probe(self, address: Address, clock: Clock) -> Diagnosis:
        """Ask an Alertmanager for its status, by which nothing is sent."""
        client = Client(address, clock)
        shown = f"{address.target} ({client.label})"
        try:
            client.look()
        except AlertmanagerError as error:
            remedy = "check alertmanager.urls, the credentials and the network"
            return Diagnosis(Level.FAILURE, "target", f"{shown}: {error}; {remedy}")
        finally:
            client.close()
        return Diagnosis(Level.OK, "target", f"{shown} answers; notify-test posts an alert to it")


def _fault(url: str, *, has_authorization: bool) -> str:
    """Return why an Alertmanager cannot have this URL, without repeating it, or ""."""
    parts = http_url(url)
    if parts is None:
        return "is not a valid URL; write it like https://alertmanager.example.com:9093"
    if set("?#") & set(url) or "@" in parts.path:
        return "has more than scheme, user, password, host, port and path; remove the rest"
    if _API_PATH in parts.path:
        return f"contains {_API_PATH}, which the exporter adds; remove it and what follows"
    if "@" in parts.netloc and has_authorization:
        return "has a user name, and alertmanager.headers has Authorization; keep one"
    return ""
