"""Serving an ASGI application on a thread of its own: uvicorn's HTTP/1.1, with limits that uvicorn lacks.

uvicorn never closes a connection that sends no request, wakes ten times a second, and leaves TLS handshakes
without a limit. So its protocol is used, and accepting, patience and room are ours. Of uvicorn this relies on
`H11Protocol`'s constructor and hooks, its ``conn`` (h11's public `Connection`) and ``logger``; a release that
changes them fails the tests of this package.
"""

from exporter.serving.addresses import listen
from exporter.serving.asgi import MAX_BODY_BYTES, AsgiApp, Message, Receive, Scope, Send, hang_up
from exporter.serving.server import AsgiServer

__all__ = [
    "MAX_BODY_BYTES",
    "AsgiApp",
    "AsgiServer",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "hang_up",
    "listen",
]
