"""requests, imported without what nothing here uses: 4 MiB for guessing encodings and for HTTP/2's version.

Whoever reads only bytes imports `requests` from here. What is imported later finds everything as always.
"""

import sys
import warnings

from exporter.frugal import with_placeholders, without

_DETECTORS = () if "requests" in sys.modules else ("chardet", "charset_normalizer")

with (
    without(*_DETECTORS),
    with_placeholders(importlib__metadata=("version",)),
    warnings.catch_warnings(),
):
    warnings.filterwarnings("ignore", "Unable to find acceptable character detection dependency")
    import requests

__all__ = ["requests"]
