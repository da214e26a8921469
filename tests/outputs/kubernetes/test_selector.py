"""The label selector of `kubernetes.drain.pod_selector`."""

import pytest

from exporter.config.kubernetes import parse_selector

# `make test-kubernetes` asks a real API server about each of these.
VALID = [
    "",
    "app",
    "!app",
    "app=web",
    "app!=web",
    "app = web, tier in (front, back),!test",
    "tier in(a,,b)",
    "remediator.kubernetes.azure.com/onFreeze",
    "app.kubernetes.io/name=It-is_1.2",
    f"{'a' * 63}={'b' * 63}",
]
INVALID = [
    "app=web,",
    "app web",
    "app=web tier=front",
    "app=-web",
    "=web",
    "!app=web",
    "tier in front",
    "tier in (front back)",
    "a/b/c",
    "a..b/c",
    "Example.com/app",
    f"{'a' * 64}=b",
    f"a={'b' * 64}",
    "app: web",
]


@pytest.mark.parametrize("selector", VALID)
def test_a_valid_selector(selector: str) -> None:
    """It becomes a parameter of requests as it stands, without spaces around it."""
    assert parse_selector(f" {selector}\n") == selector


@pytest.mark.parametrize("selector", INVALID)
def test_an_invalid_selector(selector: str) -> None:
    """The error says how one is written."""
    with pytest.raises(ValueError, match=r"is not a valid label selector.*; write it like app=web,tier in"):
        parse_selector(selector)
