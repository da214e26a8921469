"""`check-config`: find every mistake in configuration files."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from exporter.config import Overrides
from exporter.config.advice import advice
from exporter.errors import Mistakes
from exporter.notifications import planning
from exporter.web import webfile


def check_files(files: Sequence[Path], web_config_file: Path | None) -> int:
    """Print every mistake in the files, and settings without effect; return the exit status."""
    mistakes = Mistakes()
    for file in files:
        with mistakes:
            loaded, plan = planning.load(file, Overrides(), (), os.environ)
            for keys, text in advice(loaded.config):
                click.echo(f"warning: {loaded.file.error(keys, text)}", err=True)
            for name, count in plan.services.items():
                what = "service" if count == 1 else "services"
                click.echo(f"{file}: target {name}: {count} {what} with the {plan.addresses[name].label}")
            click.echo(f"{file}: ok")
    if web_config_file is not None:
        with mistakes:
            webfile.load(web_config_file)
            click.echo(f"{web_config_file}: ok")
    for problem in mistakes.problems:
        click.echo(problem, err=True)
    return 1 if mistakes.problems else 0
