"""uvicorn, imported without its command line and its set-up of logging: 3 MiB that nothing here uses.

Whoever needs uvicorn imports it from here.
"""

import sys

from exporter.frugal import with_placeholders

if "uvicorn" in sys.modules:
    from uvicorn import Config
else:
    with with_placeholders(uvicorn__main=("Server", "main", "run"), logging__config=()):
        from uvicorn import Config

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["Config", "H11Protocol", "ServerState"]
