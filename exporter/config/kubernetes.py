"""The section `kubernetes` of the configuration."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from exporter.config.match import Match, Text
from exporter.timefmt import Duration, parse_duration, parsed

DRAIN = "kubernetes.drain"  # what `require_hooks`, metrics and traces call the drain


def parse_node(value: object) -> str:
    """Return the name of a Node, a DNS subdomain, which becomes part of URLs; "" for none."""
    if not re.fullmatch(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?", str(value)):
        raise ValueError("is not a valid name of a Node; copy it from kubectl get nodes")
    return str(value)


def parse_grace_period(value: object) -> float:
    """Return a grace period in seconds; 0 for each pod's own, which is written as an empty text."""
    if value == "":
        return 0.0
    seconds = parse_duration(value)
    if seconds < 1:
        raise ValueError('is too short; write 1s or more, or "" for the period of each pod')
    return seconds


_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"((?=.{{1,253}}/){_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")
_EQUALITY = re.compile("([^!=]*)(=|==|!=)([^!=]*)")
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")


def parse_selector(value: object) -> str:
    """Return a label selector of Kubernetes, which selects by equality or by sets; "" selects all.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    selector = str(value).strip()
    # Commas within parentheses separate values.
    requirements = re.split(r",(?![^(]*\))", selector) if selector else []
    if not all(_is_requirement(requirement.strip()) for requirement in requirements):
        raise ValueError("is not a valid label selector; write it like app=web,tier in (front, back),!test")
    return selector


def _is_requirement(text: str) -> bool:
    """Return whether a text is a requirement of a label selector, such as ``tier in (front, back)``."""
    if match := _SET.fullmatch(text):
        key, values = match[1], match[3].split(",")
    elif match := _EQUALITY.fullmatch(text):
        key, values = match[1], [match[3]]
    else:
        key, values = text.removeprefix("!"), []
    return bool(_KEY.fullmatch(key.strip())) and all(_VALUE.fullmatch(value.strip()) for value in values)


NodeName = Annotated[str, parsed(parse_node)]
GracePeriod = Annotated[float, parsed(parse_grace_period, pattern="^([0-9]+(y|w|d|h|m|s|ms))*$")]
Selector = Annotated[str, parsed(parse_selector)]


class Drain(msgspec.Struct, frozen=True):
    enabled: bool = False
    mode: Literal["drain", "cordon", "dry_run"] = "drain"  # cordon: without evictions
    match: Match = Match(event_types=("Reboot", "Redeploy", "Preempt", "Terminate"))
    before: Duration = 0  # how long before NotBefore it begins at the earliest; 0: at once
    exclude_from_load_balancers: bool = False  # external ones, while it is cordoned
    force: bool = True  # also evict pods that no controller replaces
    pod_grace_period: GracePeriod = 0
    pod_selector: Selector = ""  # which pods are evicted
    delete_before: Duration = 0  # how long before NotBefore what a budget keeps is deleted; 0: never
    skip_node_labels: dict[str, str] = {}  # a Node with these is left alone

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted, so that `DRAIN` has results."""
        return self.enabled and self.mode == "drain"


class Kubernetes(msgspec.Struct, frozen=True):
    """The Node of this VM; "" for the one in $NODE_NAME."""

    node: NodeName = ""
    service_account: Text = "/var/run/secrets/kubernetes.io/serviceaccount"
    conditions: bool = True
    drain: Drain = Drain()

    def node_name(self, environ: Mapping[str, str]) -> str:
        return self.node or environ.get("NODE_NAME", "")
