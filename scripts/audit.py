"""Ask a service of known vulnerabilities about every pinned package: ``python -m scripts.audit FILE...``.

The exit status is 1 if one is vulnerable, or if the question cannot even be put. Where nobody answers, as on
a machine without internet, it warns and is 0: the tests must run there, too. With ``--strict``, as in CI,
that is a failure.
"""

import re
import subprocess
import sys
from collections.abc import Sequence

import click
import msgspec

_SECONDS = 180.0
# How pip-audit (2.10) ends where the service cannot be reached, or answers with something else than OSV's
# JSON: mostly with the traceback of its HTTP library.
_NO_ANSWER = re.compile(
    r"^(requests\.exceptions\.|pip_audit\._service\.)|network may be blocking", re.MULTILINE
)


class Vulnerability(msgspec.Struct):
    """A known vulnerability of a version."""

    id: str
    fix_versions: list[str] = []


class Package(msgspec.Struct):
    """pip-audit's result for one pinned package; a skipped one has no version."""

    name: str
    version: str = ""
    vulns: list[Vulnerability] = []
    skip_reason: str = ""


class _Report(msgspec.Struct):
    dependencies: list[Package]


class NoAnswerError(Exception):
    """The service could not be asked."""


def ask(file: str, osv_url: str) -> list[Package]:
    """Put the question for one file of pinned, hashed requirements.

    Raises:
        NoAnswerError: nobody answered, or nothing of use.
        click.ClickException: the question could not be put: the file or pip-audit is not as it should be.
    """
    command = [sys.executable, "-m", "pip_audit", "--requirement", file, "--require-hashes", "--disable-pip"]
    command += ["--vulnerability-service", "osv", *(["--osv-url", osv_url] if osv_url else [])]
    command += ["--format", "json", "--desc", "off", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(  # noqa: S603  # pip-audit, with arguments of ours
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"no answer within {_SECONDS:.0f} s") from error
    try:
        return msgspec.json.decode(done.stdout, type=_Report).dependencies
    except msgspec.DecodeError as error:
        last = done.stderr.strip().rpartition("\n")[2]
        if _NO_ANSWER.search(done.stderr):
            raise NoAnswerError(last) from error
        raise click.ClickException(f"{file}: pip-audit failed: {last}") from error


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--strict", is_flag=True, envvar="AUDIT_STRICT", help="Fail where a package cannot be audited.")
@click.option("--osv-url", default="", help="Another service that speaks OSV's protocol.")
def main(files: Sequence[str], *, strict: bool, osv_url: str) -> None:
    """Look for known vulnerabilities in pinned requirements."""
    wrong = False
    for file in files:
        try:
            packages = ask(file, osv_url)
        except NoAnswerError as error:
            click.echo(
                f"{file}: NOT AUDITED: the vulnerability service could not be asked: {error}", err=True
            )
            wrong = wrong or strict
            continue
        for package in packages:
            for known in package.vulns:
                remedy = f"fixed in {', '.join(known.fix_versions)}" if known.fix_versions else "no fix yet"
                click.echo(f"{file}: {package.name} {package.version}: {known.id}, {remedy}", err=True)
                wrong = True
            if package.skip_reason:
                click.echo(f"{file}: {package.name}: NOT AUDITED: {package.skip_reason}", err=True)
                wrong = wrong or strict
        audited = sum(not package.skip_reason for package in packages)
        click.echo(f"{file}: {audited} of {len(packages)} packages audited")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
