"""Azure's Instance Metadata Service (IMDS): its client, rate limit and back-off, and finding its address."""

from exporter.imds.client import ImdsClient, cause
from exporter.imds.discovery import client_of, endpoint_of
from exporter.imds.ratelimit import PollPauses, RateLimiter

__all__ = [
    "ImdsClient",
    "PollPauses",
    "RateLimiter",
    "cause",
    "client_of",
    "endpoint_of",
]
