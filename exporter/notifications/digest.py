"""One message in place of many, for a target that was down: a line for each, and none left out."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from exporter.model.events import Target
from exporter.model.messages import Message, Rendered, Severity, TextFormat
from exporter.model.severity import highest
from exporter.model.wording import count
from exporter.notifications.context import cleaned, weight
from exporter.notifications.cutting import fit_body, fit_title
from exporter.notifications.spans import relative, utc
from exporter.notifications.styles import Style, TitleStyle
from exporter.notifications.words import change_words, names

_HEAD = "Seen by {}, the first at {}; these messages could not be delivered before."
# Head, list, line: what stands around them, in each format.
_FRAMES: dict[TextFormat, tuple[str, str, str, str]] = {
    "markdown": ("{}\n\n", "", "- {}\n", ""),
    "text": ("{}\n\n", "", "{}\n", ""),
    "html": ("<p>{}</p>\n", "<ul>\n", "<li>{}</li>\n", "</ul>"),
}


def digest(
    messages: Sequence[Message],
    now: datetime,
    style: Style,
    text_format: TextFormat,
    *,
    limit: int | None,
) -> tuple[Rendered, int]:
    """Put as many of the messages into one as fit, in their order; return it, and how many those are.

    One at least, cut if need be. ``limit`` is in characters, for title and body together.
    """
    head_form, opening, line_form, closing = _FRAMES[text_format]
    who = next((m.instance for m in reversed(messages) if m.instance), None)
    name = style.code(style.data(who)) if who else "a VM whose name is not known yet"
    first = f"{utc(messages[0].at)}, {relative(messages[0].at, now)}"
    pieces = [style.phrase(head_form, style.phrase(_HEAD, name, first)), opening]
    size = sum(map(len, pieces)) + len(closing)
    tally: Counter[str] = Counter()
    worst = Severity.INFO
    title = ""
    for message in messages:
        line = style.phrase(line_form, _line(cleaned(message, style), style))
        rising = highest([worst, weight(message)])
        longer = fit_title(_title(tally + Counter([message.transition.value]), rising, who), limit)
        size += len(line)
        if title and limit is not None and size + len(longer) > limit:
            break
        pieces.append(line)
        tally[message.transition.value] += 1
        worst, title = rising, longer
    room = None if limit is None else max(0, limit - len(title))
    body = fit_body("".join([*pieces, closing]).rstrip(), room, text_format)
    return Rendered(title, body, text_format, worst), tally.total()


def _title(tally: Counter[str], severity: Severity, instance: str | None) -> str:
    parts = ", ".join(f"{number} {transition}" for transition, number in tally.items())
    who = TitleStyle().data(instance) if instance else "this VM (name not known yet)"
    return f"[{severity.value.upper()}] {count(tally.total(), 'message')}: {parts}: {who}"


def _line(message: Message, style: Style) -> str:
    event = message.event
    named = names(event.resources, style) or style.code(message.instance or "this VM")
    whom = style.phrase("{} for {}", event.type, named)
    if event.target is Target.OTHER:
        whom = style.phrase("{} (other VMs)", whom)
    changes = style.join([change_words(change, style) for change in message.changes])
    more = style.phrase("; {}", changes) if changes else ""
    return style.phrase(
        "{} {}: {}{} ({})", utc(message.at), message.transition.value, whom, more, style.code(event.id)
    )
