import pytest

from exporter.model.messages import TextFormat
from exporter.outputs.notifications.fitting import CUT, fit_body, fit_title
from exporter.outputs.notifications.styles import flat


def cut(body: str, room: int | None, text_format: TextFormat) -> str:
    """Return a body in a service that counts its characters as they are."""
    return body if room is None else fit_body(body, text_format, lambda text: len(text) - room)


LINES = "\n".join(f"line {number}" for number in range(100))


def test_what_fits_is_left_alone() -> None:
    """A text as long as there is room for stays whole; so does one without limit."""
    assert [flat("x" * count, 20) for count in (20, 21)] == ["x" * 20, "x" * 17 + "..."]
    assert cut("x" * 500, 500, "text") == "x" * 500
    assert cut(LINES, None, "text") == LINES


@pytest.mark.parametrize("text_format", ["markdown", "text"])
def test_a_cut_body_says_so_in_its_last_line(text_format: TextFormat) -> None:
    """Whole lines are kept, and the last one says that there was more."""
    found = cut(LINES, 200, text_format)
    *kept, blank, last = found.split("\n")
    assert (blank, last) == ("", CUT)
    assert kept == LINES.split("\n")[: len(kept)]
    assert 150 < len(found) <= 200


def test_html_is_cut_into_paragraphs_of_text() -> None:
    """Cut HTML has closed elements only, escaped text, and nothing that a browser would not show."""
    html = "<head><title>t</title></head><style>s</style><h1>a &amp; b</h1><ul>" + "<li>&lt;c&gt; d</li>" * 99
    found = cut(html, 300, "html")
    assert found.startswith("<p>a &amp; b</p>\n<p>&lt;c&gt; d</p>\n<p>&lt;c&gt; d</p>\n<p>")
    assert found.endswith(f"d</p>\n<p>{CUT}</p>")
    assert len(found) <= 300
    assert cut("<p>" + "&lt;" * 999, 30, "html") == "<p>" + "&lt;" * 5 + "</p>"
    assert cut("<p>a<br>b<script>" + "x" * 999, 20, "html") == "<p>a</p>\n<p>b</p>"
    assert cut("<p>" + "x" * 999, 3, "html") == ""


def test_markdown_is_not_cut_inside_code() -> None:
    """Neither a code span nor a fenced block is left open."""
    assert cut("a `b` c `" + "d" * 500, 300, "markdown") == f"a `b` c\n\n{CUT}"
    escaped = cut("a \\` b " + "d" * 500, 300, "markdown")
    assert escaped == cut("a \\` b " + "d" * 500, 300, "text")
    path = r"`D:\backup\` "
    assert cut(path + "d" * 500, 300, "markdown") == cut(path + "d" * 500, 300, "text")
    half = cut("d" * 270 + r"\[" * 500, 300, "markdown")
    assert half.removesuffix(f"\n\n{CUT}") == "d" * 270
    fenced = cut("```\n" * 3 + "d\n" * 500, 300, "markdown")
    assert fenced.endswith(f"d\n```\n\n{CUT}")
    assert len(fenced) <= 300
    closed = cut("```\na\n```\n" + "d\n" * 500, 300, "markdown")
    assert closed == cut("```\na\n```\n" + "d\n" * 500, 300, "text")


def test_a_fence_at_the_cut_is_left_out() -> None:
    """Where there is no room to close a block that has just begun, it does not begin."""
    text = "```\na\n```\n" + "a" * 38
    assert cut(text + "\n```\n" + "b" * 900, 54, "markdown") == text


def test_a_title_leaves_room_for_the_body() -> None:
    """A title has at most 150 characters, and at most two thirds of a short message."""
    assert fit_title("t" * 200, 10_000) == "t" * 147 + "..."
    assert fit_title("t" * 200, 60) == "t" * 37 + "..."
    assert [fit_title("t" * 200, limit) for limit in (1, 4, 5, 6)] == ["t", "tt", "ttt", "t..."]
    assert fit_title("t" * 150, 225) == "t" * 150
