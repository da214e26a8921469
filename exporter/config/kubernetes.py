"""The section `kubernetes` of the configuration."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from exporter.config.match import Match
from exporter.config.values import Duration, parsed
from exporter.errors import quoted
from exporter.timefmt import parse_duration

# What `require_hooks`, metrics and traces call the drain.
DRAIN = "kubernetes.drain"


def parse_node(value: object) -> str:
    """Return the name of a Node, a DNS subdomain, which becomes part of URLs; "" for none."""
    if not re.fullmatch(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?", str(value)):
        raise ValueError(f"{quoted(value)} is not a valid name of a Node; copy it from kubectl get nodes")
    return str(value)


def parse_grace_period(value: object) -> float:
    """Return a grace period in seconds; 0 for each pod's own, which is written as an empty text."""
    if value == "":
        return 0.0
    seconds = parse_duration(value)
    if seconds < 1:
        raise ValueError(f'{value} is too short; write 1s or more, or "" for the period of each pod')
    return seconds


NodeName = Annotated[str, parsed(parse_node)]
GracePeriod = Annotated[float, parsed(parse_grace_period)]


class Drain(msgspec.Struct, frozen=True):
    enabled: bool = False
    mode: Literal["drain", "cordon", "dry_run"] = "drain"
    match: Match = Match(event_types=("Reboot", "Redeploy", "Preempt", "Terminate"))
    before: Duration = 0
    exclude_from_load_balancers: bool = False
    force: bool = True
    pod_grace_period: GracePeriod = 0
    skip_node_labels: dict[str, str] = {}

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted, so that `DRAIN` has results."""
        return self.enabled and self.mode == "drain"


class Kubernetes(msgspec.Struct, frozen=True):
    """The Node of this VM; "" for the one in $NODE_NAME."""

    node: NodeName = ""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    conditions: bool = True
    drain: Drain = Drain()

    def node_name(self, environ: Mapping[str, str]) -> str:
        return self.node or environ.get("NODE_NAME", "")
