"""Tests of the benchmarks: that they measure and print, whatever the figures are."""

import pytest

from benchmarks import __main__ as runner
from benchmarks import core
from benchmarks.figure import Figure


def test_a_benchmark_prints_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is asked for is measured, and printed beside what it should be."""
    monkeypatch.setattr(core, "EVENTS", 1000)
    monkeypatch.setattr(core, "ROUNDS", 1)
    assert runner.main(["core"]) == 0
    assert "1000 events decoded, understood, remembered" in capsys.readouterr().out


def test_a_figure_over_its_aim_is_marked() -> None:
    """Who reads the table sees what is not as it should be."""
    assert runner.row(Figure("a", 3, "ms", 2)).split() == ["a", "3", "2", "ms", "over"]
    assert runner.row(Figure("a", 2, "ms", 2)).split() == ["a", "2", "2", "ms"]
    assert runner.row(Figure("a", 2, "ms")).split() == ["a", "2", "ms"]


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not there gives status 2 and the names that are."""
    assert runner.main(["cor"]) == 2
    assert capsys.readouterr().err.startswith("'cor' is no benchmark; there are: idle, ")
