"""Tests of `exporter.cli`: the command line's own errors, and what it passes on."""

import sys

import click
import pytest

from exporter.app import Options
from exporter.cli import main


def error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the program with a wrong command line; return the line that says what is wrong."""
    monkeypatch.setattr(sys, "argv", ["program", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert "secret" not in shown
    return shown.splitlines()[-1]


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9843", "ftp://u:secret@x", "http://", "http://x:0", "http://a b"]
)
def test_the_address_of_an_exporter_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The error says how to write it; the text may hold a password."""
    message = error(monkeypatch, capsys, "events", "--exporter.url", text)
    assert message.endswith(": is not a valid URL; write it like http://127.0.0.1:9843")


def test_the_demo_listens_on_loopback_by_default() -> None:
    """Nobody else on the network can reach a demo unless told so."""
    (flag,) = [one for one in main.commands["demo"].params if one.name == "web_listen_address"]
    assert isinstance(flag, click.Option)
    assert flag.default == "127.0.0.1:9843"
    assert Options().listen_address == ":9843"
