"""The sample configuration: it changes nothing as it is, and names every key with its default."""

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.config import Config, Hook, Overrides, Rule, loading
from exporter.config.match import Match
from exporter.notifications import planning

SAMPLE = Path(__file__).parent.parent.parent / "deploy" / "exporter.yml"


def uncommented() -> str:
    """Return the sample with every key in use: those stand directly behind the sign of a comment."""
    blocks = (re.search(r"(?ms)^#[a-z].*", block) for block in SAMPLE.read_text().split("\n\n"))
    return "\n\n".join(re.sub(r"(?m)^#", "", block[0]) for block in blocks if block)


def keys(struct: type[Any]) -> set[str]:
    """Return the names of all keys of a section and of the sections in it, but for those of `match`."""
    found: set[str] = set()
    for field in msgspec.inspect.type_info(struct).fields:  # type: ignore[attr-defined]  # of a StructType
        inner = getattr(field.type, "item_type", field.type)
        found.add(field.encode_name)
        if isinstance(inner, msgspec.inspect.StructType) and inner.cls is not Match:
            found |= keys(inner.cls)
    return found


def test_it_changes_nothing() -> None:
    """As installed it sets nothing: all defaults apply."""
    assert loading.load(SAMPLE, Overrides()) == Config()


def test_it_is_valid_with_every_key_in_use(tmp_path: Path) -> None:
    """Without the signs of comments it is a valid configuration; only files and variables have to exist."""
    url = tmp_path / "chat"
    url.write_text("json://localhost")
    url.chmod(0o600)
    text = uncommented().replace("/etc/azure-scheduled-events-exporter/chat", str(url))
    file = tmp_path / "exporter.yml"
    file.write_text(text)
    environ = {"ONCALL_URL": "json://localhost"}
    loaded, plan = planning.load(file, Overrides(), (), environ)
    assert set(plan.addresses) == {"oncall", "chat", "automation"}
    settings, defaults = loaded.config, Config()
    sections = (
        "imds",
        "instance",
        "events",
        "metrics",
        "state",
        "kubernetes",
        "in_service",
        "tracing",
        "otlp",
        "alertmanager",
    )
    for section in sections:
        assert getattr(settings, section) == getattr(defaults, section)
        assert section in yaml.safe_load(text)
    assert settings.notifications.watch.after == defaults.notifications.watch.after
    assert settings.notifications.retry_for == defaults.notifications.retry_for
    assert settings.notifications.templates == defaults.notifications.templates
    assert msgspec.structs.replace(settings.approval, rules=()) == defaults.approval
    (rule,), (hook,) = settings.approval.rules, settings.hooks
    assert (rule.delay, hook.timeout) == (Rule("", "hold").delay, Hook("", ()).timeout)


def test_every_key_is_named() -> None:
    """No key of the configuration and none of `match` is missing."""
    text = SAMPLE.read_text()
    names = keys(Config) | {field.encode_name for field in msgspec.structs.fields(Match)}
    assert sorted(name for name in names if not re.search(rf"\b{name}:", text)) == []
