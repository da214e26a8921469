"""Types of values that have a form of their own in files: plain numbers and texts once they are loaded."""

from collections.abc import Callable
from typing import Annotated

import msgspec

from exporter.timefmt import parse_duration


def parsed(parse: Callable[[object], object]) -> msgspec.Meta:
    """Return the annotation of values that ``parse`` converts; its ValueError says what is wrong."""
    return msgspec.Meta(extra={"parse": parse})


Duration = Annotated[float, parsed(parse_duration)]
