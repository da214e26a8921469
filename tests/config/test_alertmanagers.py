from pathlib import Path

from exporter import app
from exporter.errors import Mistakes

CANARY = "canary0123456789abcdef"
URLS = "['https://ann:${PASSWORD}@a.test/am/', 'http://b:9093']"


def test_addresses_are_numbered_and_have_their_variables(tmp_path: Path) -> None:
    """Variables stand in user names, passwords, of which a slash is encoded, and headers; none is shown."""
    file, mistakes = tmp_path / "exporter.yml", Mistakes()
    file.write_text(f"alertmanager: {{urls: {URLS}, headers: {{X-Token: 'a ${{TOKEN}}'}}}}")
    environ = {"PASSWORD": f"{CANARY}/x", "TOKEN": CANARY}
    addresses = app.read(app.Options(file), environ, mistakes).addresses["alertmanager"]
    assert [(one.target, one.url) for one in addresses] == [
        ("alertmanager-1", f"https://ann:{CANARY}%2Fx@a.test/am"),
        ("alertmanager-2", "http://b:9093"),
    ]
    assert {tuple(one.headers.items()) for one in addresses} == {(("X-Token", f"a {CANARY}"),)}
    assert mistakes.problems == []
    assert CANARY not in repr(addresses)
