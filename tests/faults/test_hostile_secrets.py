"""Mistakes that people make in configurations with secrets: none of the errors repeats one."""

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from exporter.notifications import engine, templating
from tests.faults.fuzz_inputs import corpus
from tests.faults.fuzz_probes import CANARY, secrets

T = TypeVar("T")
FILES = dict(corpus("secrets"))
# `make fuzz` tries many more.
MOST_TEXTS = 15
URL = f"json://alice:p@{CANARY}@{CANARY}.example/{CANARY}"
# What may have come to stand in the place of any value or key.
VALUES = (
    CANARY,
    URL,
    f"'{URL}'",
    f"json//{CANARY}",
    f"${{{CANARY}}}",
    f"${{{CANARY}:-{URL}}}",
    f"!{CANARY} x",
    f"*{CANARY}",
    f"&{CANARY} x",
    f"[{CANARY}]",
    f"{{{CANARY}: {URL}}}",
    f'"{URL}',
    f'"\\q{CANARY}"',
    f"{{{{ {CANARY} }}}}",
    f"'{{{{ {CANARY} }}}}'",
    f"'{{{{ event.{CANARY} }}}}'",
    f"'{{% {CANARY} %}}'",
    f"!!int {CANARY}",
    f"!!binary {CANARY}=",
)
DAMAGES: dict[str, Callable[[str], str]] = {
    "no colon": lambda line: line.replace(": ", " "),
    "no blank behind a colon": lambda line: line.replace(": ", ":"),
    "a blank less": lambda line: line.removeprefix(" "),
    "a tab": lambda line: line.replace("  ", "\t", 1),
    "no quotes": lambda line: line.replace('"', ""),
    "one quote": lambda line: line.replace('"', "", 1),
    "no bracket": lambda line: line.replace("}", "", 1).replace("]", "", 1),
    "twice": lambda line: f"{line}\n{line}",
    "a list": lambda line: f"- {line}",
    "the key is gone": lambda line: line.partition(": ")[2],
    "a comment": lambda line: line.replace(": ", ": #", 1),
}


def _with_values(text: str) -> Iterator[str]:
    """Put each value in the place of what follows each colon, or of the key before it."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        for value in VALUES:
            pieces = line.split(": ")
            for number in range(1, len(pieces)):
                end = "}" * (line.count("}") if number < len(pieces) - 1 else 0)
                changed = [*pieces[:number], value + end]
                yield "\n".join([*lines[:index], ": ".join(changed), *lines[index + 1 :]])
            indent = line[: len(line) - len(line.lstrip())]
            yield "\n".join([*lines[:index], f"{indent}{value}: {pieces[-1]}", *lines[index + 1 :]])


@pytest.fixture(autouse=True)
def _templates_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a process for each text with a template; `make fuzz` takes it."""
    monkeypatch.setattr(templating, "_filled_in", engine.answer)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line(file: str, damage: str) -> None:
    """A slip of the keyboard in any line, and in two neighbours."""
    lines = FILES[file].decode().splitlines()
    slips = [(index, count) for index in range(len(lines)) for count in (1, 2)]
    for index, count in _some(slips, file + damage):
        changed = [DAMAGES[damage](line) for line in lines[index : index + count]]
        secrets("\n".join([*lines[:index], *changed, *lines[index + count :]]).encode())


@pytest.mark.parametrize("file", FILES)
def test_a_secret_in_any_place(file: str) -> None:
    """Secrets as the value of any key, in any form, and as any key."""
    for text in _some(list(_with_values(FILES[file].decode())), file):
        secrets(text.encode())


def _some(found: list[T], seed: str) -> list[T]:
    """Return a part of what there is, always the same."""
    return random.Random(seed).sample(found, min(len(found), MOST_TEXTS))
