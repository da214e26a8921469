"""`check-config`: find every mistake in configuration files."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter import app
from exporter.errors import Mistakes
from exporter.web import webfile


def check_files(files: Sequence[Path], web_config_file: Path | None) -> int:
    """Print every mistake in the files, and settings without effect; return the exit status."""
    checked = [_check(file) for file in files]
    if web_config_file is not None:
        mistakes = Mistakes()
        with mistakes:
            webfile.load(web_config_file).warn()
        checked.append(_report(web_config_file, mistakes))
    return 0 if all(checked) else 1


def _check(file: Path) -> bool:
    """Print the mistakes in a file and the warnings; return whether it has no mistakes."""
    mistakes = Mistakes()
    with mistakes:
        loaded, lines = app.checked(app.Options(file), os.environ, mistakes)
        for line in lines if not mistakes.problems else ():
            click.echo(f"{file}: {line}")
        is_valid = _report(file, mistakes)
        loaded.warn()
        advice = Mistakes()
        sections = (output.section for output in app.OUTPUTS)
        for keys, text in itertools.chain.from_iterable(
            section.advice(loaded.config) for section in sections
        ):
            # Advice compares its place with these sections, and what is faulty has its default.
            if all(map(loaded.file.is_sound, ("approval", "events", "hooks", "imds", "kubernetes", keys[0]))):
                advice.problems += loaded.file.error(keys, text).problems
        for problem in advice.in_order():
            click.echo(f"warning: {problem}", err=True)
        return is_valid
    return _report(file, mistakes)


def _report(file: Path, mistakes: Mistakes) -> bool:
    """Print the mistakes in a file, or that it is valid; return whether it is valid."""
    for problem in mistakes.in_order():
        click.echo(problem, err=True)
    if not mistakes.problems:
        click.echo(f"{file}: ok")
    return not mistakes.problems
