"""The README's own examples are what the program takes."""

import re
from pathlib import Path

from exporter import config
from exporter.config import Mode, Overrides

README = Path(__file__).parents[1] / "README.md"


def blocks() -> list[str]:
    """Return the examples in YAML that configure this program."""
    found = re.findall(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if not block.startswith("scrape_configs")]


def test_the_examples_are_a_configuration(tmp_path: Path) -> None:
    """All of them together, as a reader who wants everything would put them."""
    sections: dict[str, str] = {}
    for block in blocks():
        for section in re.split(r"^(?=\w)", block, flags=re.MULTILINE):
            name = section.partition(":")[0]
            if name:
                # A section that comes again shows other keys of the same.
                again = name in sections
                sections[name] = sections.get(name, "") + (section.partition("\n")[2] if again else section)
    file = tmp_path / "exporter.yml"
    file.write_text("".join(sections.values()))
    settings = config.load(file, Overrides())
    assert settings.approval.mode is Mode.ON
    assert [rule.name for rule in settings.approval.rules][-1] == "drained-reboot"
    assert [hook.name for hook in settings.hooks] == ["drain", "uncordon"]
    assert settings.notifications.templates.title
    assert settings.metrics.events == "self"
