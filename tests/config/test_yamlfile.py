import tracemalloc
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from exporter.config import Positive, Switch, loading, yamlfile
from exporter.errors import ConfigurationError

FILE = Path("some.yml")

QUOTES = "within {...} or [...] put ${NAME} in quotes"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    wait: Positive = 1
    kind: Literal["small", "large"] = "small"


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[Part] = []
    count: int = 1
    when: str = ""
    sure: Switch = "auto"
    url: str = ""


def convert(text: str) -> Whole:
    return loading.convert(yamlfile.parse(text, FILE), Whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when: [7]", "some.yml:1: when: must be text, but is a list; write a single value"),
        ("count: 010", "some.yml:1: count: must be a whole number, but is text ('010')"),
        ("count: '10'", "some.yml:1: count: must be a whole number, but is text ('10'); remove the quotes"),
        ("count: 1.5", "some.yml:1: count: must be a whole number, but is a number (1.5)"),
        ("count: 'json://u:p@h/x'", "some.yml:1: count: must be a whole number, but is text"),
        ("url: 1", "some.yml:1: url: must be text, but is a whole number; put it in quotes"),
        (
            "parts:\n- {name: a}\n-",
            "some.yml:3: parts[1]: must be a mapping, but is nothing; write it like {key: value}",
        ),
        ("parts:\n  - {name: , wait: 1s}", "some.yml:2: parts[0].name: is missing; add it"),
        (
            "parts: off",
            "some.yml:1: parts: must be a list, but is true or false; begin each entry with a hyphen",
        ),
        ("parts: {}", "some.yml:1: parts: must be a list, but is a mapping; begin each entry with a hyphen"),
        ("- count", "some.yml:1: must be a mapping, but is a list; write it like {key: value}"),
        ("\n\nconut: 1", "some.yml:3: conut: unknown key; did you mean count?"),
        ("count: 1\non: 2", "some.yml:2: on: unknown key; must be one of: parts, count, when, sure, url"),
        *(
            (f"{key}: 1", f"some.yml:1: {shown}: unknown key; must be one of: parts, count, when, sure, url")
            for key, shown in {"1": "1", "json://u:p@h/x": "*", "password": "password"}.items()
        ),
        ("count:pass: 1", "some.yml:1: *: unknown key; did you mean count?"),
        ("parts:\n  - name: a\n    nam: b", "some.yml:3: parts[0].nam: unknown key; did you mean name?"),
        (
            "parts:\n- {name: a}\n- {name: b, kind: Large}",
            "some.yml:3: parts[1].kind: 'Large' is not supported; did you mean large?",
        ),
        ("count: 1\ncount: 2", "some.yml:2: count: is set twice, first on line 1; keep one"),
        ("count: [1", "some.yml:1: is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        *(
            (text, f"some.yml:1: is not valid YAML: no {{ is possible here; {QUOTES}")
            for text in ("part: {name: ${X}}", "parts: [${X}]")
        ),
        ("\tcount: 1", "some.yml:1: is not valid YAML: the line is indented with a tab; use spaces"),
        (
            "parts:\n  - name: a\n count: 1",
            "some.yml:3: is not valid YAML: the line is indented unlike those above; align the keys",
        ),
        ('count: 1\nurl: "x', "some.yml:2: is not valid YAML: the quotation mark is not closed"),
        (
            "url: a: b",
            "some.yml:1: is not valid YAML: a colon in a value, or too far indented; put the value in quotes",
        ),
        ("url: !run 1", "some.yml:1: is not valid YAML: the tag is not supported; put text in quotes"),
        (
            "a: &a [*a]",
            "some.yml:1: is not valid YAML: it is nested too deeply, or an anchor contains itself",
        ),
        ("\ncount: 1\nwhen: a\x01", "some.yml:3: is not valid YAML: the character U+0001 is not allowed"),
        ("url: !!int json://u:p@h", "some.yml:1: is not valid YAML: a value does not fit its tag"),
        ("? [a]\n: 1", "some.yml:1: is not valid YAML: a key is a list or a mapping; use text"),
        ("count: 1\n---\ncount: 2", "some.yml:2: is not valid YAML: there is a second document; keep one"),
        ('count: 1\n"a\\0": 1', "some.yml:2: contains a NUL character; remove it"),
        ('\nwhen: "\\ud800"', "some.yml:2: contains half of a surrogate pair; write the whole character"),
        ('"\\e[2Jcount": 1', "some.yml:1: *: unknown key; did you mean count?"),
        (
            'sure: "\\e]0;\\u202e"',
            "some.yml:1: sure: '\\x1b]0;\\u202e' is not supported; must be one of: on, off, auto",
        ),
        (
            "parts: [{name: a, wait: [1s]}]",
            "some.yml:1: parts[0].wait: must be text, but is a list; write a single value",
        ),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    """A mistake is reported with its line, its key and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        convert(text)
    assert str(caught.value) == message


def test_at_most_a_hundred_mistakes_are_reported() -> None:
    """Nobody would read more."""
    with pytest.raises(ConfigurationError) as caught:
        convert("count: 1\n" * 150)
    assert len(caught.value.problems) == 100
    assert caught.value.problems[-1] == "some.yml:101: count: is set twice, first on line 100; keep one"


def test_a_mistake_about_a_key_that_is_not_there() -> None:
    """It has the line of what the key belongs in."""
    file = yamlfile.parse("count: 1\nparts:\n- {name: a}", FILE)
    assert str(file.error(("parts", 0, "wait"), "x")) == "some.yml:3: parts[0].wait: x"
    assert str(file.error(("when",), "x")) == "some.yml:1: when: x"


@pytest.mark.parametrize("text", ["2020-07-01", "22:00", "2026-01-02T03:04:05Z", "1:30", "007", "08", '"1"'])
def test_dates_and_times_stay_text(text: str) -> None:
    """What YAML 1.1 would make a date or a number of is what the user wrote."""
    assert convert(f"when: {text}").when == text.strip('"')


def test_anchors_and_merge_keys() -> None:
    """Repetition can be spared as YAML allows; JSON's pairs of escapes are one character."""
    assert convert('when: "\\ud834\\udd1e"').when == "𝄞"
    file = convert("parts:\n- &a {name: a, wait: 5s}\n- {<<: *a, name: b}")
    assert [(part.name, part.wait) for part in file.parts] == [("a", 5), ("b", 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Aliases of aliases, and merges of merges, which add no key.
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
            + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)),
            "unfolds to more than 20000 values; use fewer aliases",
        ),
        (
            "a0: &a0 {}\n" + "\n".join(f"a{n}: &a{n} {{<<: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 40)),
            "unfolds to more than 20000 values; use fewer aliases",
        ),
        (
            f"a: &a {'[' * 300}x{']' * 300}\nb: [{', '.join(['*a'] * 300)}]",
            "is not valid YAML: it is nested too deeply, or an anchor contains itself",
        ),
        (
            "a: &a {? " + "é" * 1000 + f" : x}}\nb: [{', '.join(['*a'] * 1000)}]",
            "unfolds to more than 262144 characters; use fewer aliases",
        ),
        (
            f"a: &a {'x' * 20_000}\nb: [{', '.join(['*a'] * 1000)}]",
            "unfolds to more than 262144 characters; use fewer aliases",
        ),
    ],
)
def test_what_aliases_may_take(text: str, message: str) -> None:
    """Neither the depth nor the length of what is repeated makes a small file take much memory."""
    convert("when: a")  # imports PyYAML
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError) as caught:
            convert(text)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert str(caught.value) == f"some.yml:1: {message}"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is missing, no text or too long is named with the reason."""
    file = tmp_path / "some.yml"
    for content, problem in (
        (None, ": cannot be read: No such file or directory"),
        (b"#" * 262_145, ": has more than 262144 characters"),
        (b"count: \xff", ":1: is not UTF-8 text: invalid start byte at byte 7"),
    ):
        if content:
            file.write_bytes(content)
        with pytest.raises(ConfigurationError) as caught:
            yamlfile.read(file)
        assert str(caught.value) == f"{file}{problem}"
    # As long as may be, and with the mark that Windows' editors put before the text.
    file.write_bytes(b"\xef\xbb\xbfcount: 2 ".ljust(262_146, b"#"))
    assert loading.convert(yamlfile.read(file), Whole).count == 2
