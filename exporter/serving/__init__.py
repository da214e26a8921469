"""HTTP/1.1 server on its own thread, with limits on connections, time and memory."""

from exporter.serving.addresses import listen
from exporter.serving.http import (
    JSON,
    TEXT,
    Handler,
    HangUpError,
    Request,
    Response,
    html_page,
    tagged,
    text,
)
from exporter.serving.server import Server

__all__ = [
    "JSON",
    "TEXT",
    "Handler",
    "HangUpError",
    "Request",
    "Response",
    "Server",
    "html_page",
    "listen",
    "tagged",
    "text",
]
