"""requests, imported without what nothing here uses: 4 MiB for guessing encodings, HTTP/2, and SOCKS proxies.

Whoever reads only bytes imports `requests` from here. What is imported later finds everything as always.
Where a variable names a SOCKS proxy, what that needs is left in.
"""

import os
import warnings

from exporter.frugal import with_placeholders, without

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_asks_for_socks = any(
    os.environ.get(name, "").lower().startswith("socks")
    for proxy in _PROXIES
    for name in (proxy, proxy.upper())
)
_LEFT_OUT = ("chardet", "charset_normalizer", *(() if _asks_for_socks else ("socks",)))

with (
    without(*_LEFT_OUT),
    with_placeholders(importlib__metadata=("version",)),
    warnings.catch_warnings(),
):
    warnings.filterwarnings("ignore", "Unable to find acceptable character detection dependency")
    import requests

__all__ = ["requests"]
