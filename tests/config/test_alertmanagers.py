from pathlib import Path

import pytest

from exporter import app
from exporter.config.addresses import Address
from exporter.errors import Mistakes

CANARY = "canary0123456789abcdef"
ENVIRON = {"PASSWORD": CANARY, "TOKEN": CANARY, "SLASH": f"{CANARY}/x"}


def read(folder: Path, section: str) -> tuple[list[Address], list[str]]:
    """Return the addresses of a section, and the mistakes in it without file and line."""
    file = folder / "exporter.yml"
    file.write_text(f"alertmanager: {section}")
    file.chmod(0o600)
    mistakes = Mistakes()
    loaded = app.read(app.Options(file), ENVIRON, mistakes)
    found = [problem.removeprefix(f"{file}:1: alertmanager.") for problem in mistakes.problems]
    return list(loaded.addresses["alertmanager"]), found


def test_addresses_are_numbered_and_have_their_variables(tmp_path: Path) -> None:
    """Several have numbers; variables stand in user names, passwords and headers; secrets are not shown."""
    urls = "['https://ann:${PASSWORD}@a.test/am/', 'http://b:9093']"
    addresses, problems = read(tmp_path, f"{{urls: {urls}, headers: {{X-Token: 'a ${{TOKEN}}'}}}}")
    assert [(one.target, one.url) for one in addresses] == [
        ("alertmanager-1", f"https://ann:{CANARY}@a.test/am"),
        ("alertmanager-2", "http://b:9093"),
    ]
    assert {tuple(one.headers.items()) for one in addresses} == {(("X-Token", f"a {CANARY}"),)}
    assert problems == []
    assert CANARY not in repr(addresses)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            "{urls: ['a.test:9093']}",
            "urls[0]: is not a valid URL; write it like https://alertmanager.example.com:9093",
        ),
        (
            "{urls: ['http://a.test/?x=${TOKEN}']}",
            "urls[0]: has more than scheme, user, password, host, port and path; remove the rest",
        ),
        (
            "{urls: ['http://a.test/api/v2/alerts']}",
            "urls[0]: contains /api/v2, which the exporter adds; remove it and what follows",
        ),
        (
            "{urls: ['http://a.test', 'http://u:p@a.test/']}",
            "urls[1]: is the same as alertmanager.urls[0]; keep one",
        ),
        (
            "{urls: ['http://u:p@a.test'], headers: {authorization: '${TOKEN}'}}",
            "urls[0]: has a user name, and alertmanager.headers has Authorization; keep one",
        ),
        ("{urls: ['${NONE}']}", "urls[0]: the environment has no variable NONE; set it"),
        (
            "{headers: {X: '${NONE}'}}",
            "headers.X: the environment has no variable NONE; set it",
        ),
    ],
)
def test_a_mistake_in_an_address(tmp_path: Path, section: str, problem: str) -> None:
    """Each names its place and the remedy, and repeats no secret."""
    _, problems = read(tmp_path, section)
    assert problems == [problem]


def test_a_password_is_encoded(tmp_path: Path) -> None:
    """A slash in it does not make what follows a path."""
    (address,), problems = read(tmp_path, "{urls: ['http://u:${SLASH}@a.test']}")
    assert (address.url, problems) == (f"http://u:{CANARY}%2Fx@a.test", [])
