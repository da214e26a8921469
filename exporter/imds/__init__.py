"""Azure's Instance Metadata Service (IMDS): its client, rate limit and back-off, and finding its address."""

from exporter.imds.client import ImdsClient, cause
from exporter.imds.discovery import client_of, endpoint_of
from exporter.imds.facts import InstanceFacts
from exporter.imds.ratelimit import Backoff, RateLimiter, next_delay

__all__ = [
    "Backoff",
    "ImdsClient",
    "InstanceFacts",
    "RateLimiter",
    "cause",
    "client_of",
    "endpoint_of",
    "next_delay",
]
