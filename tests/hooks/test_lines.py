"""Tests of `exporter.hooks.lines`: any bytes become lines that a log can take."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.hooks.lines import MOST_BYTES, MOST_LINE_BYTES, MOST_LINES, Lines

REST = "(the rest of the output is left out)"


def cut(pieces: Iterable[bytes]) -> list[str]:
    """Return the lines of an output that comes in these pieces."""
    found: list[str] = []
    lines = Lines(found.append)
    for piece in pieces:
        lines.feed(piece)
    lines.close()
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"10%\r20%\n", ["10%\r20%"]),
        (b"\n\nx\n\n", ["", "", "x", ""]),
        ("日本\n".encode(), ["日本"]),
        (b"\xff\xfe\x00a\n", ["\ufffd\ufffd\x00a"]),
        ("é".encode("latin-1"), ["\ufffd"]),
    ],
)
def test_lines(data: bytes, expected: list[str]) -> None:
    """Line feeds end lines, the last one needs none, and what is not valid UTF-8 is replaced."""
    assert cut([data]) == expected


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"x" * MOST_LINE_BYTES, "x" * MOST_LINE_BYTES),
        (b"x" * (MOST_LINE_BYTES + 1), "x" * MOST_LINE_BYTES + " (line cut)"),
        (b"x" * 10 * MOST_LINE_BYTES, "x" * MOST_LINE_BYTES + " (line cut)"),
        # A letter of three bytes that the cut goes through.
        (
            b"x" * (MOST_LINE_BYTES - 2) + "日日".encode(),
            "x" * (MOST_LINE_BYTES - 2) + " (line cut)",
        ),
        (b"\xff" * (MOST_LINE_BYTES + 1), "\ufffd" * MOST_LINE_BYTES + " (line cut)"),
    ],
)
def test_a_long_line_is_cut(line: bytes, kept: str) -> None:
    """A line keeps its beginning, on the boundary of a letter, and the next line is whole again."""
    assert cut([line + b"\nnext"]) == [kept, "next"]
    assert cut([line]) == [kept]


def test_many_lines_are_cut() -> None:
    """After as many lines as are allowed, one more says that there were more; it is said once."""
    assert cut([b"x\n" * MOST_LINES]) == ["x"] * MOST_LINES
    assert cut([b"x\n" * (MOST_LINES + 1), b"y\n" * 10, b"z"]) == ["x"] * MOST_LINES + [REST]
    assert cut([b"x\n" * MOST_LINES, b"z"]) == ["x"] * MOST_LINES + [REST]


def test_many_bytes_are_cut() -> None:
    """Long lines are fewer lines."""
    line = b"x" * MOST_LINE_BYTES + b"\n"
    most = MOST_BYTES // MOST_LINE_BYTES
    assert cut([line] * (most + 5)) == ["x" * MOST_LINE_BYTES] * most + [REST]


def test_a_line_is_handed_on_with_its_line_feed() -> None:
    """Nothing is held back once a line is complete."""
    found: list[str] = []
    lines = Lines(found.append)
    lines.feed(b"one\ntw")
    assert found == ["one"]
    lines.feed(b"o\n")
    assert found == ["one", "two"]


pieces = st.lists(
    st.binary(max_size=20)
    | st.text(max_size=20).map(str.encode)
    | st.sampled_from([b"\n", b"\r\n", b"x" * 3000, b"\n" * 600, "é".encode() * 2500, "😀".encode() * 1100])
)


@settings(deadline=None)
@given(pieces)
@example([b"x" * MOST_LINE_BYTES, b"x", b"\n", b"y"])
@example([b"\n" * MOST_LINES, b"\n"])
def test_pieces_do_not_matter(parts: list[bytes]) -> None:
    """However the output is cut into pieces on its way, the lines are the same, and never too much."""
    found = cut(parts)
    whole = b"".join(parts)
    assert found == cut([whole])
    assert found == cut(whole[at : at + 7] for at in range(0, len(whole), 7))
    assert len(found) <= MOST_LINES + 1
    assert all(len(line) <= MOST_LINE_BYTES + len(" (line cut)") and "\n" not in line for line in found)
    if len(whole) < MOST_LINE_BYTES and whole.count(b"\n") < MOST_LINES:
        expected = whole.removesuffix(b"\n").split(b"\n") if whole else []
        assert found == [line.decode(errors="replace").removesuffix("\r") for line in expected]
