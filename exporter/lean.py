"""requests, imported without the detection of encodings that it brings along: 3 MiB that nothing here uses.

Whoever reads only bytes imports `requests` from here. What is imported later finds the detection as always.
"""

import sys
import warnings

_DETECTORS = ("chardet", "charset_normalizer")

# None in sys.modules is how the import system is told that a module is not to be had
# (https://docs.python.org/3/reference/import.html#the-module-cache).
_hidden = [name for name in _DETECTORS if "requests" not in sys.modules and name not in sys.modules]
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type]  # typeshed does not know of None
try:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to find acceptable character detection dependency")
        import requests
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = ["requests"]
