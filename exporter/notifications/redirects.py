"""Where a redirect leads, which Apprise does not say: asked once more, without message and secrets."""

from typing import Any
from urllib.parse import urljoin, urlsplit

_SECONDS = 5.0


def location(plugin: Any) -> str:
    """Return the scheme and host that a plugin's server redirects to; "" where it cannot be found out.

    Only what has a server of its own in its URL can be asked. The request has the path, which the server has
    seen, and neither headers nor credentials.
    """
    import requests

    host = getattr(plugin, "host", None)
    if not host:
        return ""
    scheme = "https" if getattr(plugin, "secure", False) else "http"
    port = f":{plugin.port}" if getattr(plugin, "port", None) else ""
    path = getattr(plugin, "fullpath", None) or "/"
    url = f"{scheme}://{host}{port}{path}"
    try:
        with requests.get(
            url,
            timeout=_SECONDS,
            allow_redirects=False,
            stream=True,
            verify=plugin.verify_certificate,
        ) as response:
            if not response.is_redirect:
                return ""
            found = urlsplit(urljoin(url, response.headers["Location"]))
    except (requests.RequestException, ValueError):
        return ""
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}"
