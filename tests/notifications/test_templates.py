import pytest

from exporter.model.messages import TextFormat
from exporter.notifications.protocol import Checked
from exporter.notifications.templates import Vm
from tests.notifications.sending import checked

NAMES = (
    "event, transition, instance, vm, at, now, time_left, severity, changes, detail, headline, explanation, "
    "facts"
)
EVENT = (
    "id, ids, type, source, status, target, resources, description, not_before, duration_seconds, "
    "first_seen, started, ended, outcome, changed_to, transitions, approval, impact_seconds, "
    "paused_seconds, doubts"
)
LINE = "line 1 of the template: "
TRIED = "; tried with transition advised"
NO_FIELD = "Change (which has field, old, new) has no attribute ..."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% if %}", f"{LINE}Expected an expression, got 'end of statement block'"),
        (
            "one\n{{ event.id",
            "line 2 of the template: unexpected end of template, expected 'end of print statement'",
        ),
        ("{{ evnt.id }}", f"{LINE}an unknown name; there are {NAMES}"),
        (
            "a\n{% if 1 > 2 %}\n{{ event.nope }}{% endif %}",
            f"line 3 of the template: an unknown field of event, which has {EVENT}",
        ),
        ("{% if 1 > 2 %}{{ nope }}{% endif %}", f"{LINE}an unknown name; there are {NAMES}"),
        (
            "{{ event.id | nope }}",
            f"{LINE}No filter named ...; besides Jinja2's own there are code, duration, utc, relative",
        ),
        (
            "{{ ''.__class__.__mro__ }}",
            f"{LINE}access to attribute ... of 'str' object is unsafe{TRIED}",
        ),
        (
            "\n{% for change in changes %}{{ change.was }}{% endfor %}",
            f"{LINE.replace('1', '2')}{NO_FIELD}{TRIED}, every field changed",
        ),
        (
            "{% set here = vm %}{{ here.nope }}",
            f"{LINE}Vm (which has {', '.join(Vm.__struct_fields__)}) has no attribute ...{TRIED}",
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
    ("text", "reason"),
    [
        ("{{ event.not_before.year }}", "'None' has no attribute ..."),
        ("{{ event.duration_seconds + 1 }}", "TypeError: unsupported operand"),
        ("{{ instance.upper() }}", "'None' has no attribute ..."),
        ("{{ event.resources[0] }}", "has no element 0"),
    ],
)
def test_a_template_that_fails_where_something_is_missing(text: str, reason: str) -> None:
    """It is not an error, but a gap that causes a warning."""
    found = checked(body=text)
    assert found.problem == ""
    assert reason in found.gap
    assert "tried with transition" in found.gap


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
