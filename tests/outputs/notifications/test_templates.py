from typing import Any

import pytest

from exporter.config import Templates
from exporter.model.lifecycle import Change, Transition
from exporter.model.messages import TextFormat
from exporter.outputs.notifications.protocol import Checked
from exporter.outputs.notifications.templates import Vm
from tests.builders import REBOOT_ID, SUBSCRIPTION, WEB_VM, message
from tests.clocks import NOW
from tests.outputs.notifications.sending import EXPORTER_URL, checked, rendered

NAMES = (
    "event, transition, instance, vm, at, now, time_left, severity, changes, detail, headline, explanation, "
    "facts"
)
EVENT = (
    "id, ids, type, source, status, target, resources, description, not_before, duration_seconds, "
    "first_seen, started, ended, outcome, changed_to, left, transitions, approval, "
    "impact_seconds, paused_seconds, doubts"
)
LINE = "line 1 of the template: "
TRIED = "; tried with transition advised"
NO_FIELD = "Change (which has field, old, new) has no attribute 'was'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% if %}", f"{LINE}Expected an expression, got 'end of statement block'"),
        (
            "one\n{{ event.id",
            "line 2 of the template: unexpected end of template, expected 'end of print statement'",
        ),
        ("{{ evnt.id }}", f"{LINE}evnt is unknown; there are {NAMES}"),
        (
            "a\n{% if 1 > 2 %}\n{{ event.nope }}{% endif %}",
            f"line 3 of the template: event.nope is unknown; event has {EVENT}",
        ),
        (
            "{{ event.id | nope }}",
            f"{LINE}No filter named 'nope'; besides Jinja2's own there are code, duration, utc, relative",
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
            "{% set here = vm %}{{ here.nope }}",
            f"{LINE}Vm (which has {', '.join(Vm.__struct_fields__)}) has no attribute 'nope'{TRIED}",
        ),
        (
            "{% if transition == 'vanished' %}{{ 1 / 0 }}{% endif %}",
            f"{LINE}ZeroDivisionError: division by zero; tried with transition vanished",
        ),
    ],
)
def test_a_template_that_fails_is_refused(text: str, expected: str) -> None:
    """The error has the template's line, what is wrong, what exists, and what it failed on."""
    assert checked(body=text).problem == expected
    assert checked(title=text).problem == expected


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
def test_the_sandbox_holds(text: str) -> None:
    """What would leave the sandbox, fill the memory or let data through as markup is refused at the start."""
    assert checked(body=text, format="html").problem


@pytest.mark.parametrize("text_format", ["markdown", "text", "html"])
def test_good_templates_pass(text_format: TextFormat) -> None:
    """A template that copes with all that Azure leaves out is taken; so are none, and blank ones."""
    text = (
        "{{ event.id }} {{ event.duration_seconds | duration }} {% set x = 1 %}{{ x }} {{ facts[0].label }}"
    )
    assert checked(title="{{ transition }}") == checked(body=text, format=text_format) == Checked()


def test_a_name_may_be_set_in_a_branch() -> None:
    """Jinja2 itself counts it as undeclared after the branch."""
    assert checked(body="{% if transition %}{% set c = 1 %}{% endif %}{{ c }}") == Checked()


def test_a_template_that_writes_too_much_is_refused() -> None:
    """A text of more than a million characters is not sent."""
    refusal = checked(body="{{ 'x' * 2000000 }}").problem
    assert refusal.startswith("writes more than 1048576 characters"), refusal


DESCRIPTION = "*a* [b](http://c) <i>d</i> `e` \\f ~~g~~ |h| &lt; _i_ j_k\n# l"


def body(text: str, text_format: TextFormat = "markdown", **fields: Any) -> str:
    """Return what a template makes of a message."""
    return rendered(message(**fields), templates=Templates(body=text, format=text_format)).body


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
        "Reboot updated, impact changed: vm_0 in 15 min",
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
    text = "{{ time_left }}, {{ headline }}, {{ facts[1].text }}"
    due = "0, Reboot scheduled: vm_0, was due 22:00 UTC, at any moment; was due 2026-03-04 22:00:00 UTC, now"
    assert body(text, not_before=NOW, text_format=text_format) == due


def test_lines_of_blocks_leave_no_blank_lines() -> None:
    """A line with only a block leaves no blank line."""
    assert body("a\n{% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc"


@pytest.mark.parametrize(
    ("text_format", "expected"),
    [
        ("markdown", r"\*a\* \[b\](http://c) \<i>d\</i> \`e\` \\f \~\~g\~\~ \|h\| \&lt; _i\_ j_k # l"),
        ("text", "*a* [b](http://c) <i>d</i> `e` \\f ~~g~~ |h| &lt; _i_ j_k # l"),
        ("html", "*a* [b](http://c) &lt;i&gt;d&lt;/i&gt; `e` \\f ~~g~~ |h| &amp;lt; _i_ j_k # l"),
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
    """Text that could not be read is escaped, too, and text that is cut ends in an ellipsis."""
    assert body("{{ event.description }}", description="a" + " " * 2000 + "b") == "a..."
    found = body("{{ event.doubts }}", doubts=("NotBefore: '*soon* @all'",))
    assert found == r"NotBefore: '\*soon\* (at)all'"


def test_a_template_that_says_nothing_gives_way_to_ours() -> None:
    """An empty message is none: where a template leaves a title or a body blank, ours stands in."""
    blank = "{% if transition == 'started' %}x{% endif %}"
    assert rendered(message(), templates=Templates(title=blank, body=blank)) == rendered(message())


def test_every_fact_about_the_vm_can_be_used() -> None:
    """A template gets the facts about this VM from IMDS, and the links; "" if unknown."""
    names = (*Vm.__struct_fields__[:-1], "tags.owner")
    text = "|".join(f"{{{{ vm.{name} }}}}" for name in names)
    assert checked(body=text) == Checked()
    found = rendered(message(vm=WEB_VM), templates=Templates(body=text), exporter_url=EXPORTER_URL)
    assert found.body.split("|") == [
        "rg_web",
        SUBSCRIPTION,
        "westeurope",
        "2",
        "web",
        "Standard_D4s_v5",
        WEB_VM.vm_id,
        WEB_VM.resource_id,
        f"https://portal.azure.com/#resource{WEB_VM.resource_id}",
        EXPORTER_URL,
        "aks-web-12345678-vmss000000",
        "web000000",
        "Regular",
        "ops",
    ]
    assert body(text) == "|" * (len(Vm.__struct_fields__) - 1)
    assert checked(body="{{ vm.name }}").problem.startswith(
        f"{LINE}vm.name is unknown; vm has resource_group, "
    )
