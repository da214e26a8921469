"""The golden files: the words of every message, to be read as the person on call reads them.

After a change of words, `make golden` writes them anew; read the difference before it is committed.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.config import Templates
from exporter.model.messages import AnyMessage, Rendered, TextFormat, WatchChange
from exporter.notifications.samples import samples, watch_sample
from tests.clocks import NOW
from tests.notifications.golden_cases import EXPORTER_URL, VM, ordinary, special
from tests.notifications.sending import digest, rendered

FOLDER = Path(__file__).parent / "golden"
FORMATS: dict[TextFormat, str] = {"markdown": "md", "text": "txt", "html": "html"}


def written(heading: str, found: Rendered) -> str:
    return f"======== {heading}\n{found.title}\n\n{found.body}\n"


def messages(text_format: TextFormat) -> Iterator[str]:
    fields: dict[str, Any] = {"templates": Templates(format=text_format), "exporter_url": EXPORTER_URL}
    cases = [*ordinary(), *special()]
    for heading, message, now in cases:
        yield written(heading, rendered(message, now, **fields))
    found: list[AnyMessage] = [*samples(VM, NOW)]
    for sample in found + [watch_sample(change, VM, NOW) for change in WatchChange]:
        yield written(f"a sample of notify-test: {sample.transition}", rendered(sample, **fields))
    several = [message for _, message, _ in cases]
    yield written("a digest", digest(several, NOW + timedelta(hours=1), **fields)[0])


@pytest.mark.parametrize(("text_format", "ending"), FORMATS.items())
def test_the_words_are_those_of_the_golden_file(text_format: TextFormat, ending: str) -> None:
    """Every message of every transition and type reads as it has been read."""
    file = FOLDER / f"messages.{ending}"
    found = "\n".join(messages(text_format))
    if os.environ.get("GOLDEN_WRITE"):
        file.write_text(found, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == found
