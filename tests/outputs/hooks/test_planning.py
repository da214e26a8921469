from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.config import Config, Hook, Notifications, Target
from exporter.config.addresses import variables
from exporter.model.lifecycle import Life, Transition
from exporter.model.views import EventView, event_view
from exporter.outputs.hooks.runner import MOST_BYTES, Run, environment, inherited
from tests.builders import FREEZE_ID, scheduled
from tests.clocks import NOW

VM = "WestNO_0"
VIEW = event_view(Life(scheduled(), (FREEZE_ID,), first_seen=NOW))


def told(view: EventView = VIEW, **others: Any) -> dict[str, str]:
    attempt = others.pop("attempt", 1)
    run = Run(Transition.SCHEDULED, NOW, VM, view, "VirtualMachine")
    return environment(msgspec.structs.replace(run, **others), attempt)


def test_a_long_list_is_cut_between_names() -> None:
    """Cut within web_12 it would name web_1, which may be another VM."""
    names = tuple(f"web_{number}" for number in range(10_000))
    kept = told(msgspec.structs.replace(VIEW, resources=names))["EVENT_RESOURCES"].split(",")
    assert tuple(kept) == names[: len(kept)]
    assert MOST_BYTES - 10 < len(",".join(kept)) <= MOST_BYTES
    exact = ("x" * (MOST_BYTES - 2), "y", "z")
    assert told(msgspec.structs.replace(VIEW, resources=exact))["EVENT_RESOURCES"] == ",".join(exact[:2])
    one = told(msgspec.structs.replace(VIEW, resources=("x" * 40_000,)))["EVENT_RESOURCES"]
    assert one == "x" * MOST_BYTES


anything = st.text(st.characters(exclude_categories=()))


@given(anything, st.lists(anything), st.integers(min_value=1, max_value=40_000))
@example("\ud83d", ["\ude00"], 1)
@example("é", [], 40_000)
def test_any_event_can_be_passed_on(text: str, resources: list[str], times: int) -> None:
    """Whatever Azure sends becomes variables that any system takes, of which nothing but NUL is left out.

    Lone surrogates are replaced, and a long value keeps its beginning, without half a letter.
    """
    long = text * min(times, 40_000 // (len(text) + 1))
    view = msgspec.structs.replace(
        VIEW, id=text, type=text, source=text, status=text, description=long, resources=tuple(resources)
    )
    variables = told(view, resource_type=text, instance=text, traceparent=text)
    for value in variables.values():
        assert "\0" not in value
        assert len(value.encode()) <= MOST_BYTES
    whole = long.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    kept = variables["EVENT_DESCRIPTION"]
    assert whole.startswith(kept)
    assert kept == whole or len(kept.encode()) > MOST_BYTES - 4


def test_names_without_regard_to_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows finds ${oncall_url} in ONCALL_URL, and hands it on under that name."""
    monkeypatch.setattr("sys.platform", "win32")
    assert inherited({"ONCALL_URL": "x", "Otel_Headers": "x"}, ["oncall_url"]) == {}


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "all_proxy"])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://user:secret@proxy:3128", "http://proxy:3128"),
        ("http://user:p@secret/word@proxy:3128/", "http://proxy:3128/"),
        ("user:secret@proxy:3128", "proxy:3128"),
        ("http://proxy:3128", "http://proxy:3128"),
    ],
)
def test_proxies_without_passwords(name: str, address: str, shown: str) -> None:
    """A hook can use the proxy if that requires no password."""
    assert inherited({name: address, "OTHER": address}) == {name: shown, "OTHER": address}


def test_the_variables_of_a_configuration() -> None:
    """All of all values count, whether they are used there or not, but not those of a hook's own command."""
    targets = (
        Target("a", url="slack://${TOKEN_A}/${TOKEN_B}"),
        Target("b", url_file="/run/secrets/${NOT_READ}"),
        Target("c", url="json://host/$PLAIN"),
    )
    hooks = (Hook("a", ("sh", "-c", "echo ${ITS_OWN}")),)
    found = variables(Config(notifications=Notifications(targets=targets), hooks=hooks))
    assert found == {"TOKEN_A", "TOKEN_B", "NOT_READ"}
