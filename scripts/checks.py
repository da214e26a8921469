"""Check the files of the project that no program reads here: ``python -m scripts.checks``.

Dependencies are declared and pinned, links and paths lead somewhere, flags and variables exist, and workflows
use only what there is, with few rights; dashboards are well-formed. Each problem is a line; the exit status
is 1 if there is one.
"""

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from scripts import alerts, chart, dashboards, deployment, record_demo, reference
from scripts.project import ROOT, files, read

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
MINIMUMS = dict(requirement.split(">=") for requirement in DECLARED)
# A folder of code, and the file that declares more than the program needs.
CODE = {
    "exporter": "",
    **dict.fromkeys(("tests", "benchmarks", "dashboards", "examples", "scripts"), "dev"),
}
DATA = {"tzdata"}  # the standard library reads it
FENCE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def normalized(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: Path) -> Iterator[str]:
    """Yield the modules that code imports, with what it takes from them."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.Import():
                    yield from (name.name for name in node.names)
                case ast.ImportFrom(module=str() as module, level=0):
                    yield from (f"{module}.{name.name}" for name in node.names)


@functools.cache
def owners() -> dict[str, str]:
    """Return which distribution each installed module belongs to."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        owner = normalized(distribution.name)
        for path in re.findall(r"(?m)^([\w/-]+)(?:\.[\w-]+)*,", distribution.read_text("RECORD") or ""):
            found[path.removesuffix("/__init__").replace("/", ".")] = owner
    return found


def origin(module: str) -> str:
    """Return the distribution that a module comes from."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((owners()[name] for name in names if name in owners()), normalized(parts[0]))


def dependencies() -> Iterator[str]:
    """Compare what is imported with what is declared, and that with the lowest versions."""
    declared = set(map(normalized, MINIMUMS))
    ours = sys.stdlib_module_names | {path.name for path in ROOT.iterdir() if path.is_dir()}
    for folder, name in CODE.items():
        used = {origin(module) for module in imported(ROOT / folder) if module.split(".")[0] not in ours}
        lines = read(f"requirements/{name}.in").splitlines() if name else []
        tools = {normalized(line.partition("==")[0]) for line in lines if not line.startswith("#")}
        yield from (f"{folder}: {one} is imported and not declared" for one in used - declared - tools)
        if not name:
            yield from (f"{folder}: {one} is declared and not imported" for one in declared - used - DATA)
    pins = dict(re.findall(r"^(\S+)==(\S+)", read("requirements/lowest.txt"), re.MULTILINE))
    for name, minimum in MINIMUMS.items():
        if not re.fullmatch(rf"{re.escape(minimum)}(\.0)*", pins[normalized(name)]):
            yield f"requirements/lowest.txt: {name} is not the declared minimum, {minimum}"


def pins() -> Iterator[str]:
    """Pinned requirements have hashes, and name no index."""
    for path in files("requirements/*.txt"):
        text = path.read_text()
        if "://" in text:
            yield f"{path.name}: names an index"
        for pin in re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]:
            if "--hash=sha256:" not in pin:
                yield f"{path.name}: no hash for {pin.split()[0]}"
    # A checkout that is built: its folder is the last word of a command of pip.
    building = re.compile(r"^.*pip\b.* install .*--no-deps.* (?:\.|/build|C:/build|\$project)$", re.MULTILINE)
    for path in files("*.md", "docs/*.md", "deploy/**/*"):
        for line in building.findall(path.read_text()):
            if "--no-build-isolation" not in line:
                yield f"{path.relative_to(ROOT)}: builds with unpinned tools: {line.strip()}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the docs site make them."""
    text = FENCE.sub(lambda code: "" if "\n" in code[0] else code[0].strip("`"), page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links() -> Iterator[str]:
    """Links of the documentation lead to files and headings; every page is listed; the README is short."""
    for page in files("*.md", "docs/**/*.md", "alerts/**/*.md", "deploy/**/*.md", "examples/**/*.md"):
        for link in re.findall(r"(?:\]\(|<img src=\")([^)\s\"]+)", FENCE.sub("", page.read_text())):
            path, _, fragment = link.partition("#")
            target = page.parent / path if path else page
            if "://" in link or link.startswith("mailto:"):
                continue
            if not target.exists() or (fragment and fragment not in anchors(target)):
                yield f"{page.relative_to(ROOT)}: {link} leads nowhere"
        is_page = page.parent.name == "docs" and page.name != "index.md"
        if is_page and not page.read_text().splitlines()[2].startswith("For "):
            yield f"{page.relative_to(ROOT)}: the first line does not say who the page is for"
    for page in files("README.md", "docs/**/*.md"):
        fences = re.findall(r"^ *```(\w*)$", page.read_text(), re.MULTILINE)
        if not all(fences[::2]):
            yield f"{page.relative_to(ROOT)}: a block of code has no language"
    docs = {str(path.relative_to(ROOT / "docs")) for path in files("docs/**/*.md")}
    alerts = {str(path.relative_to(ROOT)) for path in files("alerts/**/*.md")}
    shown = set(re.findall(r"^ +- .*: (\S+\.md)$", read("mkdocs.yml"), re.MULTILINE))
    yield from (f"mkdocs.yml: {page} is missing or too much" for page in (docs | alerts) ^ shown)
    listed = set(re.findall(r"\]\(([\w-]+\.md)", read("docs/index.md")))
    tops = {page for page in docs if "/" not in page} - {"index.md"}
    yield from (f"docs/index.md: {page} is not listed" for page in tops - listed)
    if len(read("README.md").splitlines()) > 140:
        yield "README.md: more than 140 lines; the reference is in docs/"


def paths_and_targets() -> Iterator[str]:
    """Targets of make and paths of the project that texts, workflows and scripts name exist."""
    phony = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    targets = {target for line in phony for target in line.split()}
    for path in files("*.md", "docs/*.md", "deploy/README.md", ".github/workflows/*.yml"):
        text = path.read_text()
        for made in re.findall(r"(?:^|`|run: |^\s+)make ([a-z][a-z-]+)", text, re.MULTILINE):
            if made not in targets:
                yield f"{path.relative_to(ROOT)}: there is no target {made}"
        for named in re.findall(r"(?<![\w/.-])(?:tests|requirements|deploy|scripts)/[\w./-]+\w", text):
            if not (ROOT / named).exists():
                yield f"{path.relative_to(ROOT)}: {named} does not exist"
    for script in files("deploy/windows/*.ps1"):
        for named in re.findall(r'Join-Path \$project "([^"]+)"', script.read_text()):
            if not (ROOT / named.replace("\\", "/")).exists():
                yield f"{script.name}: {named} does not exist"


def workflows() -> Iterator[str]:
    """Workflows may only read where a job does not say otherwise, and use actions of a fixed commit."""
    for path in files(".github/**/*.yml", ".pre-commit-config.yaml"):
        found: dict[str, Any] = yaml.safe_load(path.read_text())
        if path.parent.name != "workflows":
            continue
        text = path.read_text()
        if found["permissions"] != {"contents": "read"}:
            yield f"{path.name}: more than {{contents: read}} for all jobs"
        for action in re.findall(r"uses: (.*)", text):
            if not re.fullmatch(r"\./\S+|[\w-]+/[\w/-]+@[0-9a-f]{40} # v[\d.]+", action):
                yield f"{path.name}: {action} is not pinned to a commit with its version"
        if text.count("actions/checkout@") != text.count("persist-credentials: false"):
            yield f"{path.name}: a checkout keeps its token"
        # Without it, the audit passes where the service does not answer.
        if re.search(r"make .*\baudit\b", text) and 'AUDIT_STRICT: "1"' not in text:
            yield f"{path.name}: the audit is not strict"
    lint = read("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    for tool in (hook["entry"].removeprefix(".venv/bin/").removesuffix(" --fix") for hook in hooks):
        if f"$(BIN)/{tool}" not in lint:
            yield f".pre-commit-config.yaml: {tool} is not what make lint runs"


def exceptions() -> Iterator[str]:
    """Exceptions from the lint rules on security have a reason, and none is for the whole program."""
    lint = tomllib.loads(read("pyproject.toml"))["tool"]["ruff"]["lint"]
    ignored = [rule for rule in lint["ignore"] if re.fullmatch(r"S\d*", rule)]
    everywhere = [
        pattern
        for pattern, rules in lint["per-file-ignores"].items()
        if pattern.startswith(("exporter", "*")) and any(re.fullmatch(r"S\d*", rule) for rule in rules)
    ]
    if "S" not in lint["select"] or ignored or everywhere:
        yield "pyproject.toml: the lint rules on security do not apply to the whole program"
    for line in re.findall(r'(?m)^"\S+" = \[.*"S\d.*$', read("pyproject.toml")):
        if not re.search(r"\]\s+# \w+ \w+", line):
            yield f"pyproject.toml: no reason for {line}"
    for path in files(*(f"{folder}/**/*.py" for folder in CODE if folder != "tests")):
        for line in re.findall(r"# noqa: .*\bS\d.*", path.read_text()):
            if not re.match(r"# noqa: [A-Z0-9, ]*\d\s+(?:#|-) \S+ \w+", line):
                yield f"{path.relative_to(ROOT)}: no reason for {line}"


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (
    *(dependencies, pins, links, paths_and_targets, workflows, exceptions),
    *(alerts.problems, chart.problems, dashboards.problems, deployment.problems, reference.problems),
    record_demo.problems,
)


def main() -> None:
    """Print every problem."""
    problems = sorted({problem for check in CHECKS for problem in check()})
    for problem in problems:
        click.echo(problem, err=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
