"""`scripts.audit` against a stand-in for the service of known vulnerabilities, with the real pip-audit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.program import free_port
from tests.http_server import Connection, Request, Respond, answer, serving

ROOT = Path(__file__).parent.parent.parent
PINNED = "".join(f"{name}==1.0 --hash=sha256:{'0' * 64}\n" for name in ("harmless", "holey"))
KNOWN = {
    "id": "TEST-2026-1",
    "affected": [
        {
            "package": {"name": "holey", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pinned.txt"
    path.write_text(PINNED)
    return path


def audit(file: Path, url: str, strict: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the script as `make audit` does, but for the address."""
    command = [sys.executable, "-m", "scripts.audit", "--osv-url", url, str(file)]
    environ = os.environ | {"AUDIT_STRICT": strict}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def osv(vulnerable: str) -> tuple[list[dict[str, object]], Respond]:
    """Make a service that knows something against one package; return what it is asked, and its answer."""
    asked: list[dict[str, object]] = []

    def respond(connection: Connection, request: Request) -> None:
        query = json.loads(request.body)
        asked.append(query)
        known = {"vulns": [KNOWN]} if query["package"]["name"] == vulnerable else {}
        connection.send(answer(json.dumps(known).encode()))

    return asked, respond


def test_a_vulnerability_fails(file: Path) -> None:
    """Package, version, vulnerability and fix are printed; the exit status is 1."""
    asked, respond = osv("holey")
    with serving(respond) as service:
        done = audit(file, service.url)
    assert (done.returncode, done.stderr) == (1, f"{file}: holey 1.0: TEST-2026-1, fixed in 1.1\n")
    assert {(str(query["package"]), query["version"]) for query in asked} == {
        (str({"name": name, "ecosystem": "PyPI"}), "1.0") for name in ("harmless", "holey")
    }


@pytest.mark.parametrize(
    "refusal", [answer(status="503 Service Unavailable"), answer(b"<html>Please log in")]
)
def test_a_service_that_does_not_answer_the_question_is_told_of(file: Path, refusal: bytes) -> None:
    """An outage, or a portal that answers for everybody, is neither an all-clear nor a failure."""
    with serving(refusal) as service:
        done = audit(file, service.url)
    assert done.returncode == 0
    assert "NOT AUDITED: the vulnerability service could not be asked" in done.stderr
    assert "packages audited" not in done.stdout


def test_ci_does_not_pass_unasked(file: Path) -> None:
    """With the workflow's option, no answer is a failure."""
    done = audit(file, f"http://127.0.0.1:{free_port()}", strict="1")
    assert done.returncode == 1
    assert "NOT AUDITED: the vulnerability service could not be asked" in done.stderr
