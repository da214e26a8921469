"""`check-config`: every mistake of configuration files, and warnings of what can have no effect."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter.config import Overrides, loading
from exporter.config.checks import advice
from exporter.errors import Mistakes
from exporter.notifications import planning
from exporter.web.settings import WebSettings


def run(files: Sequence[Path], web_config_file: Path | None) -> int:
    """Print what is wrong, and return the exit status."""
    mistakes = Mistakes()
    for file in files:
        with mistakes:
            _check(file)
    if web_config_file is not None:
        with mistakes:
            WebSettings.load(web_config_file)
            click.echo(f"{web_config_file}: ok")
    for problem in mistakes.problems:
        click.echo(problem, err=True)
    return 1 if mistakes.problems else 0


def _check(file: Path) -> None:
    settings, _ = planning.load(file, Overrides(), (), os.environ)
    _, locate = loading.load_located(file, Overrides(), Mistakes())
    for keys, text in advice(settings):
        click.echo(f"warning: {locate(keys, text)}", err=True)
    click.echo(f"{file}: ok")
