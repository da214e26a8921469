"""Importing a library without what it brings along and nothing here uses: every VM of a fleet pays for it."""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Let modules seem not to be installed within the block; what is imported already stays.

    None in sys.modules is how the import system is told so
    (https://docs.python.org/3/reference/import.html#the-module-cache).
    """
    with _instead(dict.fromkeys(names)):
        yield


@contextlib.contextmanager
def with_placeholders(**attributes: tuple[str, ...]) -> Iterator[None]:
    """Let empty modules stand for modules within the block; dots in their names are written ``__``.

    Each has the attributes that are named, as None.
    """
    modules: dict[str, ModuleType | None] = {}
    for name, wanted in attributes.items():
        module = ModuleType(name.replace("__", "."))
        module.__dict__.update(dict.fromkeys(wanted))
        modules[module.__name__] = module
    with _instead(modules):
        yield


@contextlib.contextmanager
def _instead(modules: dict[str, ModuleType | None]) -> Iterator[None]:
    absent = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]  # typeshed does not know of None
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
