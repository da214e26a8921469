"""Tests of the user's templates: what is refused at the start, and what is made of those that are not."""

import logging
import re
import subprocess
import sys
from typing import Any

import pytest

from exporter.config import Templates
from exporter.errors import ConfigurationError
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import TextFormat
from exporter.notifications import templating
from exporter.notifications.engine import Vm
from exporter.notifications.rendering import Renderer
from exporter.notifications.templating import check
from tests.builders import REBOOT_ID
from tests.clocks import NOW
from tests.notifications.golden_cases import EXPORTER_URL, SUBSCRIPTION, VM, of
from tests.notifications.messages import message

NAMES = (
    "event, transition, instance, vm, at, now, time_left, severity, changes, detail, headline, explanation, "
    "facts"
)
EVENT = (
    "id, ids, type, source, status, target, resources, description, not_before, duration_seconds, "
    "first_seen, started, ended, outcome, transitions, approval, impact_seconds, "
    "paused_seconds, doubts"
)
LINE = "line 1 of the template: "
TRIED = "; tried with transition advised"
NO_FIELD = "Change (which has field, old, new) has no attribute 'was'"


def locate(keys: tuple[str | int, ...], text: str) -> ConfigurationError:
    """Make the error as a configuration file would."""
    return ConfigurationError(f"exporter.yml:7: {'.'.join(map(str, keys))}: {text}")


def problem(**templates: Any) -> str:
    """Return what is said of templates that are wrong, without the place in the file."""
    with pytest.raises(ConfigurationError) as caught:
        check(Templates(**templates), locate)
    place = f"exporter.yml:7: notifications.templates.{'title' if 'title' in templates else 'body'}: "
    assert str(caught.value).startswith(place)
    return str(caught.value).removeprefix(place)


def wide(text: str) -> str:
    """Return the text with the full-width forms of what would be markup."""
    return "".join(chr(ord(letter) + 0xFEE0) if letter in "*[]<>\\~|&#" else letter for letter in text)


def body(text: str, **fields: Any) -> str:
    """Return what a template makes of a message, in the format ``text_format``."""
    text_format = fields.pop("text_format", "markdown")
    transition = fields.pop("transition", Transition.SCHEDULED)
    renderer = Renderer(Templates(body=text, format=text_format))
    return renderer.render(message(transition, **fields), NOW).body


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% if %}", f"{LINE}Expected an expression, got 'end of statement block'"),
        (
            "one\n{{ event.id",
            "line 2 of the template: unexpected end of template, expected 'end of print statement'",
        ),
        ("{{ evnt.id }}", f"{LINE}'evnt' does not exist; there are {NAMES}"),
        (
            "a\n{% if 1 > 2 %}\n{{ event.nope }}{% endif %}",
            f"line 3 of the template: event has no 'nope'; it has {EVENT}",
        ),
        ("{% if 1 > 2 %}{{ nope }}{% endif %}", f"{LINE}'nope' does not exist; there are {NAMES}"),
        (
            "{{ event.id | nope }}",
            f"{LINE}No filter named 'nope'; beside Jinja2's own there are code, duration, utc, relative",
        ),
        (
            "{{ ''.__class__.__mro__ }}",
            f"{LINE}access to attribute '__class__' of 'str' object is unsafe{TRIED}",
        ),
        (
            "\n{% for change in changes %}{{ change.was }}{% endfor %}",
            f"{LINE.replace('1', '2')}{NO_FIELD}{TRIED}, every field changed",
        ),
        (
            "{% if transition == 'vanished' %}{{ 1 / 0 }}{% endif %}",
            f"{LINE}ZeroDivisionError: division by zero; tried with transition vanished",
        ),
    ],
)
def test_a_template_that_fails_is_refused(text: str, expected: str) -> None:
    """The error names the key, the template's line, what is wrong, what exists, and what it failed on."""
    assert problem(body=text) == expected
    assert problem(title=text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ event.not_before.year }}", "'None' has no attribute 'year'"),
        ("{{ event.duration_seconds + 1 }}", "TypeError: unsupported operand"),
        ("{{ instance.upper() }}", "'None' has no attribute 'upper'"),
        ("{{ event.resources[0] }}", "has no element 0"),
    ],
)
def test_a_template_that_fails_where_something_is_missing(
    text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is warned of, and used wherever it works."""
    check(Templates(body=text), locate)
    (record,) = caplog.records
    assert reason in record.__dict__["reason"]
    assert "tried with transition" in record.__dict__["reason"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ event['__class__'] }}",
        "{{ event.__class__.__init__.__globals__ }}",
        "{{ event | attr('__class__') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ event.resources.__class__.__base__.__subclasses__() }}",
        "{{ '{0.__class__.__mro__}'.format(event) }}",
        "{{ ('{0.__class__.__mro__}' | attr('format'))(event) }}",
        "{{ range(999999999) | list }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ changes.append(1) }}",
        "{{ event.description | safe }}",
        "{{ event.description | urlize }}",
        "{{ lipsum() }}",
        "{{ " + "(" * 5000 + "}}",
    ],
)
@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_the_sandbox_holds(text: str, text_format: TextFormat) -> None:
    """What would leave the sandbox, fill the memory or let data through as markup is refused at the start."""
    assert problem(body=text, format=text_format)


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_good_templates_pass(text_format: TextFormat) -> None:
    """A template that copes with all that Azure leaves out is taken; so are none, and blank ones."""
    text = (
        "{{ event.id }} {{ event.duration_seconds | duration }} {% set x = 1 %}{{ x }} {{ facts[0].label }}"
    )
    check(Templates(title="{{ transition }}", body=text, format=text_format), locate)
    check(Templates(title=" ", body="\n"), locate)
    check(Templates(), locate)


def test_every_variable_can_be_used() -> None:
    """A template gets the event, what happened, and when, with lists, times and None fit to be read."""
    text = (
        "{{ event.id }}|{{ event.resources }}|{{ event.not_before }}|{{ event.started }}|{{ transition }}|"
        "{{ instance }}|{{ at }}|{{ time_left }}|{{ severity }}|{{ headline }}|"
        "{% for change in changes %}{{ change.field }} {{ change.old }} {{ change.new }}{% endfor %}"
    )
    changes = (Change("duration_seconds", None, 9),)
    assert body(text, transition=Transition.UPDATED, changes=changes, text_format="text").split("|") == [
        REBOOT_ID,
        "vm_0, vm_1",
        "2026-03-04 22:15:00 UTC",
        "unknown",
        "updated",
        "vm_0",
        "2026-03-04 22:00:00 UTC",
        "900",
        "warning",
        "Reboot updated: vm_0 in 15 min",
        "duration_seconds unknown 9",
    ]


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [
        ("markdown", "`vm_0`, `vm_1`"),
        ("text", "vm_0, vm_1"),
        ("html", "<code>vm_0</code>, <code>vm_1</code>"),
    ],
)
def test_the_filters_write_for_people(text_format: TextFormat, expected: str) -> None:
    """`code` sets a value apart in the format at hand; `duration`, `utc` and `relative` word times."""
    text = "{% for vm in event.resources %}{{ vm | code }}{{ ', ' if not loop.last }}{% endfor %}"
    assert body(text, text_format=text_format) == expected
    text = (
        "{{ time_left | duration }}, {{ event.not_before | relative }}, {{ at | utc }}, {{ none | relative }}"
    )
    assert body(text, text_format=text_format) == "15 min, in 15 min, 2026-03-04 22:00:00 UTC, unknown"


def test_times_are_datetimes() -> None:
    """A template may do with a time what Python can."""
    assert body("{% if event.not_before %}{{ event.not_before.strftime('%H:%M') }}{% endif %}") == "22:15"


def test_lines_of_blocks_leave_no_blank_lines() -> None:
    """A block on a line of its own leaves nothing behind."""
    assert body("a\n{% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc"


DESCRIPTION = "*a* [b](http://c) <i>d</i> `e` \\f ~~g~~ |h| &lt; _i_ j_k\n# l"


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [
        (
            "markdown",
            wide("*a* [b](http://c) <i>d</i> 'e' \\f ~~g~~ |h| &lt; _i\N{FULLWIDTH LOW LINE} j_k # l"),
        ),
        ("text", "*a* [b](http://c) <i>d</i> `e` \\f ~~g~~ |h| &lt; _i_ j_k # l"),
        (
            "html",
            "*a* [b](http://c) &lt;i&gt;d&lt;/i&gt; `e` \\f ~~g~~ |h| &amp;lt; _i_ j_k # l",
        ),
    ],
)
def test_data_is_no_markup_in_a_users_template(text_format: TextFormat, expected: str) -> None:
    """What Azure says is harmless wherever a template puts it, by whatever way."""
    for text in (
        "{{ event.description }}",
        "{% autoescape false %}{{ event.description }}{% endautoescape %}",
        "{% set x %}{{ event.description }}{% endset %}{{ x }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(event.description) }}",
    ):
        assert body(text, description=DESCRIPTION, text_format=text_format) == expected


def test_no_text_is_left_out() -> None:
    """What could not be read is quoted from Azure, too, and is made as harmless."""
    assert body("{{ event.doubts }}", doubts=("NotBefore: '*soon* @all'",)) == wide(
        "NotBefore: '*soon* (at)all'"
    )


def test_data_is_never_evaluated() -> None:
    """A description that is a template stays text."""
    found = Renderer(Templates(body="{{ event.description }}", title="{{ event.description }}")).render(
        message(description="{{ 7 * 7 }} {% raw %} {0} %s"), NOW
    )
    assert found.body == found.title == wide("{{ 7 * 7 }} {% raw %} {0} %s")


def test_mentions_call_nobody() -> None:
    """Neither ``@everyone`` nor Slack's own forms survive in data; the template's own words do."""
    text = "{{ event.description }} @oncall"
    said = "@everyone <!channel> <@U1> <#C1> <https://a|b> a@b"
    for text_format in ("markdown", "text", "html"):
        found = body(text, description=said, text_format=text_format)
        assert found.count("@") == 1
        assert found.endswith(" @oncall")
        assert not any(form in found for form in ("<!", "<#", "<https", "&lt;!", "&lt;#", "&lt;https"))


def test_a_title_is_one_plain_line() -> None:
    """A title has no line break, no control character, no markup of Azure's, and at most 150 characters."""
    title = "{{ transition }}:\n{{ event.description }}\u202e\x07" + "x" * 200
    found = Renderer(Templates(title=title, format="html")).render(message(description="<b>\n*c*"), NOW).title
    assert found.startswith(wide("scheduled: <b> *c*??xxx"))
    assert len(found) == 150
    assert found.endswith("x...")


def test_a_template_that_fails_later_gives_way_to_ours(caplog: pytest.LogCaptureFixture) -> None:
    """Should a template fail on what no sample had, ours stands in, and the log says it once."""
    text = "{% if event.description == 'odd' %}{{ 1 / 0 }}{% endif %}mine"
    check(Templates(title=text, body=text), locate)
    renderer = Renderer(Templates(title="{{ 1 / 0 if event.description == 'odd' else 'mine' }}", body=text))
    ours = Renderer(Templates()).render(message(description="odd"), NOW)
    with caplog.at_level(logging.WARNING):
        assert renderer.render(message(description="odd"), NOW) == ours
        assert renderer.render(message(description="odd"), NOW) == ours
    assert [record.__dict__["key"] for record in caplog.records] == [
        "notifications.templates.title",
        "notifications.templates.body",
    ]
    assert "division by zero" in caplog.records[0].__dict__["reason"]
    assert renderer.render(message(), NOW).body == "mine"


def test_a_template_that_says_nothing_gives_way_to_ours() -> None:
    """An empty message is none: where a template leaves a title or a body blank, ours stands in."""
    blank = "{% if transition == 'started' %}x{% endif %}"
    ours = Renderer(Templates()).render(message(), NOW)
    assert Renderer(Templates(title=blank, body=blank)).render(message(), NOW) == ours


def test_jinja_is_not_imported() -> None:
    """Nobody pays for Jinja2 with memory: it is for the process that fills in templates alone."""
    code = (
        "import sys; from exporter.config import Templates; "
        "from exporter.notifications import rendering, templating; "
        "from tests.notifications.messages import message; from tests.clocks import NOW; "
        "templating.check(Templates(), lambda keys, text: None); "
        "rendering.Renderer(Templates()).render(message(), NOW); before = 'jinja2' in sys.modules; "
        "rendering.Renderer(Templates(body='x')).render(message(), NOW); "
        "print(before, 'jinja2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ 9 ** (9 ** 9) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ 'x' | center(10 ** 9) }}",
        "{{ 'x' * 2000000 }}",
    ],
)
def test_a_template_without_end_gives_way_to_ours(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Time, memory and length are bounded, at the start as for a message, and the log says so."""
    refusal = problem(body=text)
    assert re.search("takes more than 2 s|writes more than 1048576 characters|MemoryError", refusal), refusal
    sent = Renderer(Templates(body=text)).render(message(), NOW)
    assert sent == Renderer(Templates()).render(message(), NOW)
    assert caplog.messages == ["a template fails; messages go out as the program writes them"]


def test_a_template_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that fills it in has only what Python needs."""
    monkeypatch.setenv("ONCALL_URL", "canary")
    assert set(templating._environment()) <= {"PYTHONPATH", "SYSTEMROOT"}


def test_every_fact_about_the_vm_can_be_used() -> None:
    """A template gets what IMDS knows of this VM, and the links; "" where nothing is known."""
    text = "|".join(f"{{{{ vm.{name} }}}}" for name in Vm.__struct_fields__)
    check(Templates(body=text), locate)
    sent = of(Transition.SCHEDULED, "Reboot")
    assert Renderer(Templates(body=text), EXPORTER_URL).render(sent, NOW).body.split("|") == [
        "rg_web",
        SUBSCRIPTION,
        "westeurope",
        "2",
        "web",
        "Standard_D4s_v5",
        VM.vm_id,
        VM.resource_id,
        f"https://portal.azure.com/#resource{VM.resource_id}",
        EXPORTER_URL,
    ]
    assert body(text) == "|" * (len(Vm.__struct_fields__) - 1)
    assert problem(body="{{ vm.name }}").startswith(f"{LINE}vm has no 'name'; it has resource_group, ")


def test_a_change_of_not_before_is_a_datetime() -> None:
    """A template gets it as the event's own times, though the outbox keeps it as text."""
    text = "{% for change in changes %}{{ change.old.minute }} {{ change.new.minute }}{% endfor %}"
    found = Renderer(Templates(body=text)).render(of(Transition.UPDATED, "Reboot"), NOW)
    assert found.body == "25 15"
