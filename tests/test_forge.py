"""Tests of what GitHub and pre-commit read: it parses, and names only what exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = sorted((ROOT / ".github").rglob("*.yml"))
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"


def load(file: Path) -> dict[str, Any]:
    """Return what a YAML file holds."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def commands(workflow: Path) -> Iterator[str]:
    """Yield what the steps of a workflow run, for each value of the matrix that is in it."""
    for job in load(workflow)["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            text = step.get("run", "")
            found = re.search(r"\$\{\{ matrix\.(\w+) \}\}", text)
            if not found:
                yield text
                continue
            key = found[1]
            values = matrix.get(key, []) + [more[key] for more in matrix.get("include", []) if key in more]
            yield from (text.replace(found[0], value) for value in values)


def make_targets() -> set[str]:
    """Return the targets that are meant to be named."""
    lines = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return {target for line in lines for target in line.split()}


@pytest.mark.parametrize("file", [*FILES, PRE_COMMIT], ids=lambda file: file.name)
def test_it_parses(file: Path) -> None:
    """Each file is YAML with keys; an issue form has no field twice, and only fields have an id."""
    found = load(file)
    names = [field["id"] for field in found.get("body", []) if field["type"] != "markdown"]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_run_what_exists(workflow: Path) -> None:
    """The targets of make, tests and pinned requirements that a workflow names are there."""
    for command in commands(workflow):
        program, *words = command.split() or [""]
        if program == "make":
            assert set(words) <= make_targets()
        for path in re.findall(r"\b(?:tests|requirements)/\S+", command):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_can_do_no_harm(workflow: Path) -> None:
    """They may only read, keep no token behind, and use actions of a fixed commit, with its version."""
    text = workflow.read_text(encoding="utf-8")
    assert load(workflow)["permissions"] == {"contents": "read"}
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action) for action in uses)
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_pre_commit_uses_the_tools_of_make_lint() -> None:
    """Its hooks run what the Makefile runs, from the same environment, so that they cannot disagree."""
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    hooks = [hook for repo in load(PRE_COMMIT)["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/").removesuffix(" --fix")
        assert f"$(BIN)/{tool}" in lint
