"""The checks of the section `hooks` of the configuration."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from exporter.config import Config
from exporter.config.checks import Fault, unique, useless
from exporter.config.kubernetes import DRAIN
from exporter.config.yamlfile import YamlFile
from exporter.outputs.output import Section


class HooksSection(Section):
    def faults(self, config: Config, file: YamlFile) -> Iterator[Fault]:
        yield from unique(("hooks",), [hook.name for hook in config.hooks])
        for index, hook in enumerate(config.hooks):
            if hook.name == DRAIN:
                yield ("hooks", index, "name"), f"{DRAIN} is the built-in drain; choose another name"
            if not hook.command or not hook.command[0].strip():
                yield ("hooks", index, "command"), 'is empty; write it like ["/usr/local/bin/drain"]'

    def advice(self, config: Config) -> Iterator[Fault]:
        for index, hook in enumerate(config.hooks):
            yield from useless(("hooks", index, "match"), hook.match, config)
            if hook.command and (reason := _not_executable(hook.command[0])):
                yield ("hooks", index, "command"), reason


def _not_executable(command: str) -> str:
    path = Path(command)
    if path.name == command:
        return "" if shutil.which(command) else "the program is not found in PATH"
    if not path.exists():
        return "the program does not exist"
    return "" if path.is_file() and os.access(path, os.X_OK) else "the program is not executable"
