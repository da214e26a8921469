"""Tests of `exporter.hooks.withheld`: secrets of the exporter that hooks do not get."""

import pytest

from exporter.config import Notifications, Target
from exporter.hooks.withheld import Withheld
from exporter.notifications.addresses import variables
from tests.hooks.support import ran, shell


@pytest.mark.parametrize(
    ("name", "withheld"),
    [
        ("SCHEDULED_EVENTS_NOTIFY", True),
        ("OTEL_EXPORTER_OTLP_HEADERS", True),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", True),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", True),
        ("ONCALL_URL", True),
        ("oncall_url", False),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", False),
        ("OTEL_RESOURCE_ATTRIBUTES", False),
        ("SCHEDULED_EVENTS_IMDS_ENDPOINT", False),
        ("MY_OTEL_EXPORTER_OTLP_HEADERS", False),
        ("PATH", False),
    ],
)
def test_what_is_withheld(name: str, withheld: bool) -> None:
    """URLs, headers of receivers, and what the configuration names; nothing else."""
    assert Withheld(["ONCALL_URL"]).has(name) is withheld


def test_names_without_regard_to_case() -> None:
    """Windows finds ${oncall_url} in ONCALL_URL, and hands it on under that name."""
    assert Withheld(["oncall_url"]).has("ONCALL_URL", fold=True)


def test_the_variables_of_a_configuration() -> None:
    """All variables of all URLs count, and no name of anything else."""
    targets = (
        Target("a", url="slack://${TOKEN_A}/${TOKEN_B}"),
        Target("b", url="${ONCALL_URL}"),
        Target("c", url_file="/run/secrets/${NOT_READ}"),
        Target("d", url="json://host/$PLAIN"),
    )
    assert variables(Notifications(targets=targets)) == {"TOKEN_A", "TOKEN_B", "ONCALL_URL"}


def test_a_command_does_not_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is withheld is not even there; what the event says comes all the same, under whatever name."""
    for name in ("ONCALL_URL", "SCHEDULED_EVENTS_NOTIFY", "OTEL_EXPORTER_OTLP_HEADERS", "KEPT"):
        monkeypatch.setenv(name, "canary")
    done = ran(
        *shell("env | grep -c canary; echo ${ONCALL_URL-unset} $EVENT_ID $KEPT"),
        environment={"EVENT_ID": "x"},
        withheld=Withheld(["ONCALL_URL", "EVENT_ID"]),
    )
    assert done.lines == ["1", "unset x canary"]
