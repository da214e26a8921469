"""Test random mutations of the program: ``python -m scripts.mutants PYTHON``.

Cosmic Ray makes the mutations. This script draws a sample of them, as all of them would take days, and
chooses the tests. PYTHON is an interpreter with the requirements of the tests.
"""

import difflib
import itertools
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import click
import parso
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

_PROJECT = Path(__file__).parent.parent
_COPIES = _PROJECT / "build" / "mutants"
# A part is a package of exporter/ or one of its modules; its tests are those of the same name and these. What
# has a slash is a module of a package. Those that import a module are found besides.
_TESTS = {
    "__main__": (
        "tests/commands",
        "tests/end_to_end/test_signals.py",
        "tests/end_to_end/test_first_process.py",
        "tests/test_lean.py",
    ),
    "app": (
        "tests/commands",
        "tests/test_reloading.py",
        "tests/test_systemd.py",
        "tests/end_to_end/test_signals.py",
        "tests/end_to_end/test_ending.py",
    ),
    "cli": (
        "tests/commands",
        "tests/docs/test_reference.py",
        "tests/end_to_end/test_approve.py",
        "tests/end_to_end/test_demo.py",
        "tests/test_packaging.py",
    ),
    "clock": ("tests/watch",),
    "commands/approve": ("tests/end_to_end/test_approve.py",),
    "commands/assets": ("tests/test_packaging.py",),
    "commands/flags": ("tests/docs/test_reference.py", "tests/end_to_end/test_demo.py"),
    "commands/demo": ("tests/end_to_end/test_demo.py",),
    "config": (
        "tests/commands/test_check_config.py",
        "tests/outputs/notifications/test_addresses.py",
        "tests/test_secret_files.py",
        "tests/deploy/test_deploy.py",
    ),
    "config/kubernetes": ("tests/outputs/kubernetes",),
    "config/match": ("tests/commands/test_notify_test.py",),
    "errors": ("tests/outputs/hooks/test_command.py", "tests/model", "tests/imds", "tests/config"),
    "files": ("tests/test_private.py", "tests/test_secret_files.py", "tests/state"),
    "hooks": ("tests/end_to_end/test_hooks.py",),
    "health": ("tests/test_systemd.py", "tests/web", "tests/outputs/notifications"),
    "metrics": ("tests/watch", "tests/outputs/kubernetes"),
    "model": (
        "tests/faults/test_hostile_documents.py",
        "tests/faults/test_hostile_growth.py",
        "tests/watch",
    ),
    "notifications/samples": ("tests/commands/test_notify_test.py",),
    "pipeline": ("tests/test_reloading.py", "tests/outputs/approval", "tests/watch"),
    "serving": (
        "tests/faults/test_hostile_connections.py",
        "tests/web/test_app.py",
        "tests/web/test_auth.py",
        "tests/web/test_renewal.py",
    ),
    "serving/pages": ("tests/web/test_page.py", "tests/simulator/test_control.py"),
    "state": (
        "tests/test_private.py",
        "tests/bench/test_otlp.py",
        "tests/bench/test_hooks.py",
        "tests/outputs/approval",
        "tests/faults/test_hostile_growth.py",
    ),
    "timefmt": ("tests/config", "tests/model"),
    "otlp": ("tests/end_to_end/test_otlp.py",),
    "transport": ("tests/imds",),
    "watch": ("tests/faults/test_hostile_documents.py",),
    "web": ("tests/security/test_routes.py",),
    "work": ("tests/test_reloading.py",),
}
_QUICK = ("-m", "not e2e")
# These start programs, but no browser: that takes longer than all others of a part.
_SLOW = ("-m", "e2e", "--ignore-glob=*/test_browser.py")
# Tests of the whole pipeline, for what the part's own tests leave alive.
_BENCH = "tests/bench"
_PASSED = (0, 5)  # none of the tests failed, or none was chosen
_COMPARISONS = (
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
)
_ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "BitAnd_BitXor")
_OPERATORS = (
    "delete-statement",
    *(f"core/ReplaceComparisonOperator_{names}" for names in _COMPARISONS),
    *(f"core/ReplaceBinaryOperator_{names}" for names in _ARITHMETIC),
    *(
        "core/ReplaceUnaryOperator_Delete_Not",
        "core/AddNot",
        "core/ReplaceAndWithOr",
        "core/ReplaceOrWithAnd",
    ),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/NumberReplacer"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"),
    *("core/ExceptionReplacer", "core/ZeroIterationForLoop"),
)


# Constants of a module that bound or estimate sizes, or are its time limits and pauses: of one more or less,
# no test should know. Their numbers are not mutated, nor are the sizes of caches...
_TUNING = re.compile(
    r"_?(MOST|MAX|LONGEST|SHORTEST|LARGE|KEPT)_\w+|\w+_(BYTES|LIMIT|CHARACTERS|SECONDS|MARGIN)"
    r"|CAPACITY|BACKLOG|_BATCH|_REMEMBERED"
)
# ... except for these, whose values are promised.
_PROMISED = {
    *("_COMPARE_SECONDS", "_LONGEST_RETRY_SECONDS", "_RETRY_SECONDS", "LEAST_SECONDS", "LONGEST_WAIT"),
    *("MOST_ATTEMPTS_FOR_ONE", "MOST_SINGLE"),
}


class _DeleteStatement:
    """An operator that Cosmic Ray lacks: a call, or an assignment to an attribute, becomes ``pass``."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield where a statement starts and ends, once for each that can go."""
        if node.type == "simple_stmt" and parso.tree.search_ancestor(node, "funcdef"):
            statement = node.children[0]
            target: Any = statement.children[0] if statement.type == "expr_stmt" else statement
            if target.type in {"atom_expr", "power"}:
                yield statement.start_pos, statement.end_pos

    def mutate(self, node: Any, _index: int) -> Any:
        """Replace the statement by one that does nothing."""
        prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = parso.python.tree.Keyword("pass", node.start_pos, prefix)
        return node


class Mutation(NamedTuple):
    """The occurrence of an operator in a module; `line` is where it is."""

    module: str
    line: int
    operator: str
    occurrence: int


def _operator(name: str) -> Any:
    return plugins.get_operator(name)() if "/" in name else _DeleteStatement()


def _says_nothing(operator: str, node: Any) -> bool:
    """Return whether a survivor would say nothing about the tests."""
    if operator == "core/ReplaceTrueWithFalse" and node.parent.type == "argument":
        # mypy refuses assignments to what is declared as immutable; `zip` only checks with `strict`. Without
        # `kw_only` a class accepts all that it accepted before.
        return node.parent.children[0].value in {"frozen", "strict", "kw_only"}
    if operator == "core/ReplaceBinaryOperator_Mul_Div" and node.parent.type == "parameters":
        # It is no multiplication but marks parameters as keywords, which mypy checks.
        return True
    if operator == "core/AddNot" and node.children[1].get_code().strip() == "TYPE_CHECKING":
        # What is imported for mypy alone can be imported at run time, too.
        return True
    return _is_for_windows(node) or (operator == "core/NumberReplacer" and _is_tuning(node))


def _is_for_windows(node: Any) -> bool:
    """Return whether a node runs on Windows only, where no mutation is tested."""
    block = parso.tree.search_ancestor(node, "if_stmt")
    if block is None:
        return False
    _, condition, _, suite, *_ = block.children
    is_inside = suite.start_pos <= node.start_pos < suite.end_pos
    is_for_windows = is_inside and condition.get_code(include_prefix=False) == 'sys.platform == "win32"'
    return is_for_windows or _is_for_windows(block)


def _is_tuning(node: Any) -> bool:
    if node.parent.type == "argument" and node.parent.children[0].value == "maxsize":
        return True
    if node.parent.type == "arglist" and node.parent.children[0].get_code() == "os":
        # The default of a flag that Linux has: getattr(os, "O_NOFOLLOW", 0).
        return True
    statement = parso.tree.search_ancestor(node, "expr_stmt")
    if statement is None or statement.parent.parent.type != "file_input":
        return False
    name = statement.children[0].get_code(include_prefix=False)
    return _TUNING.fullmatch(name) is not None and name not in _PROMISED


def mutations() -> Iterator[Mutation]:
    """Yield every mutation of the program, in the same order each time."""
    for path in sorted(_PROJECT.glob("exporter/**/*.py")):
        nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
        for name in _OPERATORS:
            operator = _operator(name)
            places = [(node, start) for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, (node, (line, _)) in enumerate(places):
                if not _says_nothing(name, node):
                    yield Mutation(path.relative_to(_PROJECT).as_posix(), line, name, occurrence)


def _compiles(mutation: Mutation) -> bool:
    """Return whether a mutation is a program at all: Cosmic Ray writes ``if not x := y``, too.

    In an except clause it cannot replace one of several names if that has a dot.
    """
    source = (_PROJECT / mutation.module).read_text(encoding="utf-8")
    try:
        compile(
            mutate_code(source, _operator(mutation.operator), mutation.occurrence), mutation.module, "exec"
        )
    except (SyntaxError, AttributeError):
        return False
    return True


def _stages(module: str, root: Path) -> list[list[str]]:
    """Return the tests of a module: that import it, of its part, and the quick ones of the whole."""
    _, *names = Path(module).with_suffix("").parts
    part, path = names[0], "/".join(names)
    own = [f"tests/{part}", f"tests/test_{part}.py"]
    own += [one for name in dict.fromkeys((part, path)) for one in _TESTS.get(name, ())]
    own = [one for one in own if (root / one).exists()]
    importing = _importing(".".join(["exporter", *names]).removesuffix(".__init__"), root)
    importing.sort(key=lambda one: not one.startswith(tuple(own)))
    ignored = [f"--ignore={one}" for one in importing]
    others = [one for one in own if one not in importing]
    stages = [(_QUICK, importing), ([*_QUICK, *ignored], others), (_SLOW, own), (_QUICK, [_BENCH])]
    return [[*chosen, *paths] for chosen, paths in stages if paths]


def _importing(module: str, root: Path) -> list[str]:
    """Return the tests that import a module, except for those of the whole."""
    package, _, name = module.rpartition(".")
    line = re.compile(rf"^from ({module} import|{package} import .*\b{name}\b)", re.MULTILINE)
    paths = sorted(root.glob("tests/**/test_*.py"))
    found = [path.relative_to(root).as_posix() for path in paths if line.search(path.read_text("utf-8"))]
    return [path for path in found if not path.startswith(_BENCH)]


def _environment(root: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(root)}


def _die(python: Path, root: Path, tests: list[str], seconds: float) -> bool:
    """Return whether the tests fail in this copy of the project, or take longer than that."""
    command: list[str | Path] = [python, "-m", "pytest", "-qx", "--hypothesis-seed=0"]
    command += ["-p", "no:cacheprovider", *tests]
    environment = _environment(root) | {"PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(  # noqa: S603  # only pytest, with names of tests
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(seconds) not in _PASSED
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return True


class _Bench:
    """Copies of the project, one for each worker."""

    def __init__(self, python: Path, workers: int, seconds: float) -> None:
        self._python = python
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._limits: defaultdict[tuple[str, ...], float] = defaultdict(lambda: seconds)
        shutil.rmtree(_COPIES, ignore_errors=True)
        listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=_PROJECT, text=True)  # noqa: S607  # whichever git
        files = [name for name in listing.split("\0") if name and (_PROJECT / name).exists()]
        for number in range(workers):
            root = _COPIES / str(number)
            for name in files:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(_PROJECT / name, root / name)
            # Compile everything once, because that takes longer than many tests. Mutated files are newer.
            subprocess.run(  # noqa: S603  # only pytest
                [python, "-m", "pytest", "-q", "--collect-only"],
                cwd=root,
                env=_environment(root),
                stdout=subprocess.DEVNULL,
                check=True,
            )
            self._free.put(root)

    def time(self, tests: list[str]) -> None:
        """Run tests on the program as it is.

        Raises:
            click.ClickException: they fail without any mutation.
        """
        root = self._free.get()
        began = time.monotonic()
        failed = _die(self._python, root, tests, 900)
        self._limits[tuple(tests)] = 60 + 5 * (time.monotonic() - began)
        self._free.put(root)
        if failed:
            raise click.ClickException(f"the tests fail without any mutation: {' '.join(tests)}")

    def survives(self, mutation: Mutation) -> str:
        """Return the difference that a mutation makes if no test notices it, or else an empty string."""
        root = self._free.get()
        path = root / mutation.module
        source = path.read_text(encoding="utf-8")
        mutated = mutate_code(source, _operator(mutation.operator), mutation.occurrence)
        path.write_text(mutated, encoding="utf-8")
        try:
            for tests in _stages(mutation.module, root):
                if _die(self._python, root, tests, self._limits[tuple(tests)]):
                    return ""
        finally:
            path.write_text(source, encoding="utf-8")
            self._free.put(root)
        lines = difflib.unified_diff(source.splitlines(), mutated.splitlines(), n=1, lineterm="")
        return "\n".join([f"{mutation.module}:{mutation.line}: {mutation.operator}", *list(lines)[3:]])


@click.command()
@click.argument("python", type=click.Path(exists=True, path_type=Path))
@click.option("--number", default=200, help="How many mutations.")
@click.option("--seed", default=1, help="Another seed draws others.")
@click.option("--part", default="", help="Only modules whose path begins so, such as exporter/watch.")
@click.option("--workers", default=os.cpu_count() or 1, help="How many are tested at a time.")
@click.option(
    "--seconds", default=0.0, help="A limit of time for each run of tests, instead of measuring all."
)
@click.option("--at-least", default=0.0, help="Fail if a smaller share in percent dies.")
def main(  # noqa: PLR0913  # the options
    python: Path, *, number: int, seed: int, part: str, workers: int, seconds: float, at_least: float
) -> None:
    """Report the share of random mutations that a test notices, and each that none does."""
    every = [mutation for mutation in mutations() if mutation.module.startswith(part)]
    shuffled = random.Random(seed).sample(every, len(every))  # noqa: S311  # no secret
    drawn = sorted(itertools.islice(filter(_compiles, shuffled), number))
    # The path of the interpreter as it is: a link that is resolved leads out of its environment.
    bench = _Bench(Path.cwd() / python, workers, seconds)
    stages = {tuple(tests) for mutation in drawn for tests in _stages(mutation.module, _PROJECT)}
    survivors = 0
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(bench.time, () if seconds else map(list, sorted(stages))))
        for left in pool.map(bench.survives, drawn):
            survivors += bool(left)
            if left:
                click.echo(f"{left}\n")
    died = 100 * (1 - survivors / len(drawn))
    click.echo(f"{len(drawn) - survivors} of {len(drawn)} mutations died: {died:.1f}% (seed {seed})")
    sys.exit(died < at_least)


if __name__ == "__main__":
    main()
