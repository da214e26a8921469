import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from exporter.config import Templates
from exporter.model.events import Affected
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import Message, Rendered, TextFormat
from exporter.outputs.notifications.styles import flat
from tests.builders import message
from tests.clocks import NOW
from tests.outputs.notifications.sending import rendered

thorough = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
# With what services have besides CommonMark.
COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])
BLOCKS = {
    f"{block}_{end}" for block in ("paragraph", "bullet_list", "list_item") for end in ("open", "close")
}
EVIL = "`*_[x](http://y)<b>@everyone<!channel>&lt;\u202e\u200b\x07\x1b[31m\r\n# {{ 7*7 }}\ud800\\"
TEMPLATES: dict[TextFormat, str] = {
    "markdown": "{{ event.description }} {{ event.id | code }} {{ event.resources }} {{ headline }}",
    "text": "{{ event.description }}\n{{ changes }}",
    "html": '<b>{{ event.description }}</b><i title="{{ event.id }}">{{ event.resources }}</i>',
}
OURS: list[dict[str, Any]] = [
    {"templates": Templates(format=text_format), "timezone": zone}
    for text_format, zone in zip(TEMPLATES, ("UTC", "America/St_Johns", "Pacific/Kiritimati"), strict=True)
]
TITLE = "{{ event.type }} {{ event.description }}"
THEIRS: list[dict[str, Any]] = [
    {"templates": Templates(body=text, title=TITLE, format=form)} for form, text in TEMPLATES.items()
]

texts = st.text(st.characters(exclude_categories=()), max_size=60) | st.sampled_from([EVIL, EVIL * 20])
times = st.datetimes(timezones=st.just(UTC))
names = st.lists(texts, max_size=15).map(tuple)
values = st.none() | st.integers() | texts | names | times
messages = st.builds(
    lambda transition, instance, changes, fields: message(
        transition, instance=instance, changes=changes, **fields
    ),
    st.sampled_from(Transition),
    st.none() | texts,
    st.lists(
        st.builds(
            Change,
            st.sampled_from(["not_before", "duration_seconds", "resources", "description"]),
            values,
            values,
        ),
        max_size=3,
    ).map(tuple),
    st.fixed_dictionaries(
        {},
        optional={
            "id": texts,
            "type": texts,
            "source": texts,
            "status": texts,
            "description": texts,
            "resources": names,
            "target": st.sampled_from(Affected),
            "not_before": st.none() | times,
            "duration_seconds": st.none() | st.integers(min_value=0, max_value=4 * 10**9),
        },
    ),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(" ".join([tag, *(name for name, _ in attrs)]))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def parsed(markdown: str) -> list[Token]:
    """Return what a CommonMark parser finds: blocks, and the pieces of their texts."""
    return [token for block in COMMONMARK.parse(markdown) for token in [block, *(block.children or [])]]


_OURS = re.compile(
    r'<https://github.com/[^>]*>|\[Runbook\]\(https://github.com/[^)]*\)|<a href="https://github.com/[^<]*</a>'
)


def is_harmless(found: Rendered) -> None:
    """Check what must hold of every message: no control characters, no mentions, no markup of Azure's."""
    assert found.title.strip()
    assert found.title.isprintable()
    assert len(found.title) <= 150
    assert all(line.isprintable() for line in found.body.split("\n"))
    body = _OURS.sub("", found.body)
    found = Rendered(found.title, body, found.format, found.severity)
    assert not re.search(r"@|<!(?!-)|<#|<https?:", found.title + found.body)
    assert not set(found.title) & set("`<>*\\")
    if found.format == "markdown":
        kinds = {token.type for token in parsed(found.body)}
        assert kinds <= BLOCKS | {"inline", "text", "softbreak", "code_inline"}
    if found.format == "html":
        reader = Tags()
        reader.feed(found.body)
        reader.close()
        assert not reader.open
        assert set(reader.tags) <= {"p", "ul", "li", "code", "b", "i title"}


@given(messages, times, st.none() | st.integers(min_value=1, max_value=2000), st.booleans())
@example(message(description=EVIL, type=EVIL, id=EVIL, resources=(EVIL,), source=EVIL), NOW, None, False)
@example(message(instance=EVIL, target=Affected.OTHER, resources=(EVIL,) * 14), NOW, 300, True)
@thorough
def test_no_text_of_azures_does_harm(sent: Message, now: datetime, limit: int | None, late: bool) -> None:
    """Whatever stands in whichever field, a message is rendered, is harmless, and keeps the limit."""
    for fields in (*OURS, *THEIRS):
        found = rendered(sent, now, limit=limit, failed=late, **fields)
        is_harmless(found)
        assert fields in THEIRS or len(found.title) <= 60
        assert limit is None or len(found.title) + len(found.body) <= limit
        assert limit is not None or len(found.body) < 20_000


@given(texts | st.text("*_`[](){}<>&#;:!~|\\\\-+=1. ax", max_size=30))
@example("a_b__c _d_ __e__ _f")
@example("# a")
@example("- a")
@example("> a")
@example("1. a")
@thorough
def test_markdown_shows_a_text_as_it_is(text: str) -> None:
    """In Markdown nothing is lost or added: what a parser makes of a text of Azure's is that text."""
    for before, after in (("", "!"), ("x: ", "")):
        templates = Templates(body=f"{before}{{{{ event.description }}}}{after}")
        found = parsed(rendered(message(description=text), templates=templates).body)
        shown = "".join(token.content for token in found if token.type == "text")
        assert shown == f"{before}{flat(text)}{after}".rstrip()


@given(st.from_regex(r"_?[A-Za-z0-9]{1,9}((__|[._-])[A-Za-z0-9]{1,9}){0,5}", fullmatch=True), st.uuids())
@example("my_set_3", "C7061BAC-AFDC-4513-B24B-AA5F13A16123")
@thorough
def test_names_and_ids_stay_as_they_are(name: str, event_id: object) -> None:
    """What a VM can be called, and a GUID, stand in every message letter by letter."""
    for fields in OURS:
        found = rendered(message(instance=name, id=str(event_id)), **fields)
        assert name in found.body
        assert len(name) > 12 or name in found.title
        assert str(event_id) in found.body
