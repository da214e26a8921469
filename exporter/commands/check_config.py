"""`check-config`: find every mistake in configuration files."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter.commands.advice import advice
from exporter.config import Overrides
from exporter.errors import Mistakes
from exporter.outputs.notifications import checking
from exporter.web import webfile


def check_files(files: Sequence[Path], web_config_file: Path | None) -> int:
    """Print every mistake in the files, and settings without effect; return the exit status."""
    checked = [_check(file) for file in files]
    if web_config_file is not None:
        mistakes = Mistakes()
        with mistakes:
            webfile.load(web_config_file)
        checked.append(_report(web_config_file, mistakes))
    return 0 if all(checked) else 1


def _check(file: Path) -> bool:
    """Print the mistakes in a file and the warnings; return whether it has no mistakes."""
    mistakes = Mistakes()
    with mistakes, checking.opened(file, Overrides(), (), os.environ, mistakes) as (loaded, plan, _):
        if not mistakes.problems:
            for name, count in plan.services.items():
                what = "service" if count == 1 else "services"
                click.echo(f"{file}: target {name}: {count} {what} with the {plan.addresses[name].label}")
        is_valid = _report(file, mistakes)
        loaded.warn()
        for keys, text in advice(loaded.config):
            # Advice compares its place with these sections, and what is faulty has its default.
            if all(map(loaded.file.is_sound, ("approval", "events", "hooks", "imds", "kubernetes", keys[0]))):
                click.echo(f"warning: {loaded.file.error(keys, text)}", err=True)
        return is_valid
    return _report(file, mistakes)


def _report(file: Path, mistakes: Mistakes) -> bool:
    """Print the mistakes in a file, or that it is valid; return whether it is valid."""
    for problem in mistakes.in_order():
        click.echo(problem, err=True)
    if not mistakes.problems:
        click.echo(f"{file}: ok")
    return not mistakes.problems
