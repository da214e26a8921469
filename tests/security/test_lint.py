"""ruff's rules on security hold for the program, and what is excepted from them is explained."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_rules_on_security_are_on() -> None:
    """All of S is selected, none of it ignored, and no file of the program excepted."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if re.fullmatch(r"S\d*", rule)]
    assert not [pattern for pattern in lint["per-file-ignores"] if pattern.startswith(("exporter", "*"))]


def test_every_exception_has_its_reason() -> None:
    """Behind each noqa of a rule on security there are words."""
    lines = [
        line
        for folder in ("exporter", "scripts", "benchmarks", "dashboards", "examples")
        for path in ROOT.glob(f"{folder}/**/*.py")
        for line in path.read_text().splitlines()
        if re.search(r"# noqa: .*\bS\d", line)
    ]
    assert lines
    assert [line for line in lines if not re.search(r"# noqa: [A-Z0-9, ]*\d\s+(?:#|-) \S+ \w+", line)] == []


def test_every_folder_with_exceptions_has_its_reason() -> None:
    """Behind each line that excepts a folder from rules on security there are words, too."""
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition("[tool.ruff.lint.per-file-ignores]\n")[2].partition("\n[")[0]
    lines = [line for line in section.splitlines() if re.search(r'"S\d', line)]
    assert lines
    assert [line for line in lines if not re.search(r"\]\s+# \w+ \w+", line)] == []
