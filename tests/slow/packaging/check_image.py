"""The container image: built from the Dockerfile by buildah, and run.

Not among the tests that pytest finds by itself: it needs root and the network. ``make test-image`` runs it.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import __version__
from exporter.config import PROGRAM
from exporter.simulator import Simulator, SimulatorServer, load_scenarios
from tests.end_to_end.program import eventually, free_port, get
from tests.slow.packaging.debian import root

PROJECT = Path(__file__).parents[3]
IMAGE = f"localhost/{PROGRAM}-test"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

pytestmark = pytest.mark.timeout(900)


def buildah(*arguments: str | Path) -> str:
    done = subprocess.run(["buildah", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def container(image: str) -> Iterator[str]:
    """Make a container of an image for the time of the block; return its name."""
    name = buildah("from", image)
    try:
        yield name
    finally:
        buildah("rm", name)


def base() -> str:
    """Return the image to build on: the one in BASE, or a Debian that trusts what this machine does."""
    given = os.environ.get("BASE")
    if given:
        return given
    with container("scratch") as name:
        buildah("copy", "--quiet", name, root(), "/")
        buildah("copy", "--quiet", name, CERTIFICATES, CERTIFICATES)
        buildah("config", "--env", f"PIP_CERT={CERTIFICATES}", name)
        buildah("commit", "--quiet", name, "localhost/debian-python")
    return "localhost/debian-python"


def built(tag: str, *arguments: str) -> str:
    """Build the image as a release does, and return its name."""
    build = ["build", "--quiet", "--isolation", "chroot", "--format", "docker", "--layers", "--tag", tag]
    build += ["--build-arg", f"VERSION={__version__}", *arguments]
    buildah(*build, "--file", PROJECT / "deploy" / "docker" / "Dockerfile", PROJECT)
    return tag


@pytest.fixture(scope="module")
def base_argument() -> str:
    return f"--build-arg=BASE={base()}"


@pytest.fixture(scope="module")
def image(base_argument: str) -> str:
    return built(IMAGE, base_argument)


def configuration(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]
    return found


def init(argument: str) -> int:
    """Return the process that the entry point starts; buildah itself would kill it at once."""
    done = subprocess.run(
        ["pgrep", "--full", f"^/usr/bin/tini .*{argument}"], capture_output=True, check=True
    )
    return int(done.stdout)


def test_what_the_image_says(image: str) -> None:
    """Not root, an init, labels with the version."""
    said = configuration(image)
    assert said["User"] == "65532:65532"
    assert said["Entrypoint"] == ["/usr/bin/tini", "--", PROGRAM]
    assert said["Labels"]["org.opencontainers.image.version"] == __version__


def test_it_knows_its_version(image: str) -> None:
    """The console script and the distribution's metadata are there."""
    with container(image) as name:
        run = ["run", "--isolation", "chroot", name, "--"]
        assert buildah(*run, PROGRAM, "--version") == f"{PROGRAM}, version {__version__}"
        ask = f"import importlib.metadata as m; print(m.version('{PROGRAM}'))"
        assert buildah(*run, "/opt/scheduled-events/bin/python", "-c", ask) == __version__


def test_it_runs(image: str) -> None:
    """Started as the image says it serves what it sees, is healthy by its own check, and ends in order."""
    said, port = configuration(image), free_port()
    with SimulatorServer(Simulator(load_scenarios(["host-maintenance"]))) as imds, container(image) as name:
        run = ["buildah", "run", "--isolation", "chroot", name, "--"]
        flags = ["--imds.endpoint", imds.url, "--web.listen-address", f"127.0.0.1:{port}"]
        process = subprocess.Popen([*run, *said["Entrypoint"], *said["Cmd"], *flags])
        try:
            eventually(lambda: json.loads(get(f"http://127.0.0.1:{port}/api/v1/events"))["current"])
            check = [word.replace("9843", str(port)) for word in said["Healthcheck"]["Test"][1:]]
            assert subprocess.run([*run, *check], check=False).returncode == 0
        finally:
            os.kill(init(flags[-1]), signal.SIGTERM)
        assert process.wait(30) == 0
