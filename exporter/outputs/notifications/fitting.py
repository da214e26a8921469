"""Cutting of titles and bodies to what a service accepts, as the service will count it."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from html import escape, unescape
from typing import NamedTuple

from exporter.model.messages import TextFormat
from exporter.outputs.notifications.facts import Fact

CUT = "Shortened for this service."
# By how many characters a title and a body in this format are too long for a service; 0 or less if they fit.
Excess = Callable[[str, str, TextFormat], int]
_LONGEST_TITLE = 150
BODY_TAG = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_CLOSING_FENCE = "\n```"
# An escaped backslash or backtick, or a whole code span, in which a backslash escapes nothing.
_CODE = re.compile(r"\\[\\`]|(`+).+?(?<!`)\1(?!`)", re.DOTALL)
_HALF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(head|script|style|template)\b.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[^<>]*>")
_LINE_END = re.compile(r"<br\b[^>]*>|</?(?:p|div|li|[uo]l|tr|h[1-6]|table|pre)\b[^>]*>", re.IGNORECASE)
_PARAGRAPH = "</p>\n<p>"
# Half a character reference, and the end of a paragraph, or a part of it.
_CUT_OFF = re.compile(r"(?:</p>\s*)?(?:<p>|[&<][^;>]*)?\Z")
_MOST_SHRINKAGE = 4  # no conversion shortens a text to less than this part of it, unless it is mostly markup
# The facts in the order in which they are kept; those that are not listed are the same in every message about
# this VM. The texts of the last ones may be long, and are cut.
_ORDER = (
    *("Event", "To start it now", "To check", "Changed to"),
    *("Starts", "Started", "Was due", "Ended", "Last valid answer", "Recovered"),
    *("Runbook", "Exporter", "Azure portal", "This VM", "Seen by", "Host name"),
    *("Reason", "Changed", "Last error", "Approved by", "Approval", "Cause", "Expected impact", "Status"),
    *("Description", "VMs", "Other VMs", "Requested by"),
)
_CUTTABLE = frozenset(("Reason", "Changed", "Last error", "Approval", "Description", "VMs", "Other VMs"))
_SHORTEST_TEXT = 20
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


class Room(NamedTuple):
    """What a service accepts; ``formats`` are those that it shows without a conversion, the shortest last."""

    excess: Excess
    formats: Sequence[TextFormat] = ()

    @property
    def is_text(self) -> bool:
        """Whether a text is not converted, though it may be shown with its markup."""
        return list(self.formats) in ([], ["text"])


class Body(NamedTuple):
    """The parts of a body: when it happened if that is a while ago, the consequences, and facts."""

    delay: str = ""
    head: str = ""
    facts: Sequence[Fact] = ()
    note: str = ""


def fit_title(title: str, limit: int) -> str:
    """Cut a one-line title to 150 characters, or to two thirds of ``limit`` if that is less."""
    most = max(1, min(_LONGEST_TITLE, limit * 2 // 3))
    if len(title) <= most:
        return title
    return title[: most - 3].rstrip() + "..." if most > 3 else title[:most]


def fit_body(body: str, text_format: TextFormat, excess: Callable[[str], int]) -> str:
    """Cut a body of any content so that it fits, with a note at the end if there is room for it.

    HTML becomes paragraphs of text, because its elements must not be cut.
    """
    limit = -excess("")
    if len(body) <= _MOST_SHRINKAGE * max(limit, 1) and excess(body) <= 0:
        return body
    room = min(len(body) - 1, limit)
    while room > 0:
        kept = _cut(body, room, text_format)
        over = excess(kept)
        if over <= 0:
            return kept
        # A conversion makes most of a text longer by the same factor.
        room = min(room * limit // (limit + over), room - 1)
    return ""


def fit_facts(body: Body, written: Callable[[Body], str], excess: Callable[[str], int]) -> str:
    """Return a body as ``written``, without the facts for which there is no room; a note says so.

    The event's id is kept first, then the consequences, what to do, the times, and links. Facts that are the
    same in every message about this VM go first.
    """

    def fits(attempt: Body) -> bool:
        return excess(written(attempt)) <= 0

    if fits(body):
        return written(body)
    first, *others = sorted(range(len(body.facts)), key=lambda index: _rank(body.facts[index]))
    kept = _with_facts(Body(), {}, body, [first], fits)
    if fits(longer := kept._replace(delay=body.delay)):
        kept = longer
    sentences = _SENTENCE_END.split(body.head)
    heads = [" ".join(sentences[:number]) for number in range(len(sentences), 0, -1)]
    kept = next((longer for head in heads if fits(longer := kept._replace(head=head))), kept)
    if kept == Body():
        return written(Body(head=_longest(body.head, lambda head: fits(Body(head=head)))))
    if fits(longer := kept._replace(note=CUT)):
        kept = longer
    already = {first: body.facts[first]} if kept.facts else {}
    return written(_with_facts(kept, already, body, others, fits))


def _with_facts(
    kept: Body, already: dict[int, Fact], body: Body, more: Sequence[int], fits: Callable[[Body], bool]
) -> Body:
    """Return what is kept with those further facts of ``body`` for which there is room, in their order there.

    The facts are identified by their position; ``already`` has those that are kept.
    """

    def with_fact(index: int, fact: Fact) -> Body:
        return kept._replace(facts=[item for _, item in sorted({**already, index: fact}.items())])

    def fits_with(index: int, label: str, text: str) -> bool:
        return fits(with_fact(index, Fact(label, text)))

    for index in more:
        fact = body.facts[index]
        if fact.label in _CUTTABLE and not fits(with_fact(index, fact)):
            fact = fact._replace(text=_longest(fact.text, partial(fits_with, index, fact.label)))
        if fact.text and fits(longer := with_fact(index, fact)):
            already[index], kept = fact, longer
    return kept


def _rank(fact: Fact) -> int:
    return _ORDER.index(fact.label) if fact.label in _ORDER else len(_ORDER)


def _longest(text: str, fits: Callable[[str], bool]) -> str:
    """Return the longest start of a text that fits; "" if that is only a few characters."""
    length = bisect_left(range(len(text)), True, key=lambda most: not fits(f"{text[: most + 1].rstrip()}..."))
    return f"{text[:length].rstrip()}..." if length >= _SHORTEST_TEXT else ""


def _cut(body: str, room: int, text_format: TextFormat) -> str:
    """Return a body of at most ``room`` characters, with the note if it takes less than half of them."""
    before, after, note = "", "", f"\n\n{CUT}"
    if text_format == "html":
        parts = (unescape(_TAG.sub("", part)).split() for part in _LINE_END.split(_HIDDEN.sub("", body)))
        body = _PARAGRAPH.join(escape(" ".join(words)) for words in parts if words)
        before, after, note = "<p>", "</p>", f"{_PARAGRAPH}{CUT}"
    if room < 2 * len(note):
        note = ""
    left = room - len(before + note + after)
    kept = body[: max(left, 0)]
    line_end = kept.rfind("\n")
    if line_end > left // 2:
        kept = kept[:line_end]
    if text_format == "markdown":
        kept = _closed(kept, left)
    elif text_format == "html":
        kept = _CUT_OFF.sub("", kept)
    return before + kept.rstrip() + note + after if kept or note else ""


def _closed(kept: str, room: int) -> str:
    """Close an open fenced block, and remove an open code span or half an escape."""
    if len(_FENCE.findall(kept)) % 2:
        inside = kept[: room - len(_CLOSING_FENCE)].rstrip("`\n")
        return inside + _CLOSING_FENCE if len(_FENCE.findall(inside)) % 2 else inside
    if _HALF_ESCAPE.search(kept):
        kept = kept[:-1]
    opened = _CODE.sub(lambda code: " " * len(code[0]), kept).find("`")
    return kept if opened < 0 else kept[:opened]
