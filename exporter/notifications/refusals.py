"""Why Apprise does not accept the URL of a target, in words that contain no part of the URL."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from exporter.config.addresses import NO_URL, Address

_FORMATS = "https://github.com/caronc/apprise/wiki/config"
_TOKEN = re.compile(r"\{(\w+)\}")


def refusal(address: Address, *, has_services: bool = False) -> str:
    """Return why Apprise does not accept an address, and the remedy.

    ``has_services`` is whether it accepts any service of the address's file.
    """
    from apprise import Apprise

    if address.apprise_config is not None:
        where = "notifications.apprise_config"
        missing = f"{where} has no service with this tag that Apprise accepts; add it there"
        unread = f"Apprise accepts no service in the file of {where}; see {_FORMATS}"
        return missing if has_services else unread
    scheme, separator, _ = address.label.partition("://")
    if not separator:
        return NO_URL
    if scheme in ("http", "https"):
        return (
            f"Apprise does not recognize this {scheme}:// URL, or part of it is missing; copy all of it, or "
            "use the service's own scheme, such as slack://"
        )
    service = next(
        (
            found
            for found in Apprise().details(show_disabled=True)["schemas"]
            if scheme in (*(found["protocols"] or ()), *(found["secure_protocols"] or ()))
        ),
        None,
    )
    if service is None:
        return f"Apprise knows no service {scheme}://; see the list in its documentation"
    if not service["enabled"]:
        return f"Apprise needs more Python packages for {scheme}://; see {service['setup_url']}"
    reason = _fault(address.url, service["details"])
    return f"Apprise does not accept this {scheme}:// URL{reason}; see {service['setup_url']}"


def _fault(url: str, details: Mapping[str, Any]) -> str:
    """Return what is missing or malformed in a URL, and the form that it should have."""
    rest = url.partition("://")[2].partition("?")[0]
    if rest.partition("/")[0].count("@") > 1:
        return ": it has more than one @; write %40 in user names and passwords"
    scheme = url.partition("://")[0].lower()
    if scheme.startswith("mailto"):
        return f"; write it like {scheme}://user:password@example.com?to=oncall@example.com"
    form = details["templates"][0]
    names = _TOKEN.findall(form)[1:]
    parts = [unquote(part) for part in re.split(r"[/@:]", rest) if part]
    wrong = ""
    if len(parts) < len(names):
        wrong = f": {{{names[len(parts)]}}} is missing"
    for name, part in zip(names, parts, strict=False):
        pattern = details["tokens"][name].get("regex")
        if pattern and not re.match(pattern[0], part, re.IGNORECASE):
            wrong = f": {{{name}}} is malformed"
    return f"{wrong}; write it like {form.replace('{schema}', scheme)}" if wrong else ""
