"""The layers of the test suite, and how it uses a machine."""

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.bench import Bench
    from tests.web.certificates import Pki

# Several hundred tests start the program, which is to be compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# On a busy machine any example can take long.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

_HERE = Path(__file__).parent
# These start the program, browsers, Prometheus and the like; `pytest -m "not e2e"` leaves them out.
_END_TO_END = (
    "alerts",
    "commands/test_notify_test.py",
    "dashboards",
    "deploy",
    "docs/test_samples.py",
    "end_to_end",
    "faults",
    "outputs/hooks/test_command_ends.py",
    "outputs/notifications/test_services.py",
    "security/test_hooks.py",
    "security/test_privileges.py",
    "simulator/test_browser.py",
    "state/test_process.py",
    "test_packaging.py",
    "web/test_browser.py",
)
# These have the longest tests. They come first, so that none of them runs alone at the end.
_LONG = ("dashboards/test_queries.py", "end_to_end/test_alertmanager.py", "faults/test_hostile_load.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of whole programs, and put the longest first."""
    for item in items:
        if _path(item).startswith(_END_TO_END):
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: not _path(item).startswith(_LONG))


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).as_posix()


def pytest_xdist_auto_num_workers() -> int:
    """Return more than there are processors: half of the time a test waits for a program."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + 2


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., "Bench"]]:
    """Return the constructor of `tests.bench.Bench`, from the text of a configuration file."""
    from tests.bench import Bench

    made: list[Bench] = []
    with contextlib.ExitStack() as stack:

        def make(text: str = "", **fields: Any) -> Bench:
            folder = tmp_path / f"bench{len(made)}"
            folder.mkdir()
            bench = Bench(folder, monkeypatch, text, **fields)
            made.append(bench)
            stack.callback(bench.close)
            return bench

        yield make


@pytest.fixture
def pki(tmp_path: Path) -> "Pki":
    from tests.web.certificates import Pki

    return Pki.make(tmp_path)


@pytest.fixture
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's and a client's context that trust each other."""
    import trustme

    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a directory that every user may write to, as that of `tmp_path` is closed."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@pytest.fixture
def checks_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check targets and templates in this process, which spares another one for each configuration."""
    from tests.bench.senders import MemorySender

    monkeypatch.setattr(
        "exporter.outputs.notifications.checking.SenderProcess", lambda *_: MemorySender(is_real=True)
    )


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """Restore the levels that commands and services set, as other tests read the log."""
    loggers = [logging.getLogger(name) for name in ("apprise", "exporter", "urllib3")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
