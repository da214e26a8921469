"""What all parts that work in the background share."""

from typing import NamedTuple

from exporter.clock import Clock
from exporter.health import Health
from exporter.metrics import Metrics


class Shared(NamedTuple):
    """What every part counts in, reports its problems to, and takes the time from."""

    metrics: Metrics
    health: Health
    clock: Clock
