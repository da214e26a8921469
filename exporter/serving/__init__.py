"""An ASGI application over HTTP/1.1 on a thread of its own, with limits on connections, time and memory."""

from exporter.serving.addresses import listen
from exporter.serving.server import TRUST, AsgiApp, AsgiServer, HangUpError, Message, Receive, Scope, Send

__all__ = ["TRUST", "AsgiApp", "AsgiServer", "HangUpError", "Message", "Receive", "Scope", "Send", "listen"]
