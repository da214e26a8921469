"""The corpus through the probes, and a short search; ``make fuzz`` searches for as long as one likes."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.faults.fuzz_inputs import SEARCHED, corpus, inputs, with_secrets
from tests.faults.fuzz_probes import PROBES, exchange, ports

KEPT = [(name, file) for name in PROBES for file, _ in corpus(name)]
short = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_the_corpus(name: str, file: str) -> None:
    """What once did harm, and what looks as if it could, does none."""
    PROBES[name](dict(corpus(name))[file])


@pytest.mark.parametrize("file", [file for file, _ in corpus("requests") if "." in file])
def test_the_status_of_a_request(file: str) -> None:
    """Where the name of a kept request ends with a status, that is the answer."""
    answer = exchange(ports()[0], dict(corpus("requests"))[file])
    assert answer.startswith(b"HTTP/1.1 " + file.rpartition(".")[2].encode())


@pytest.mark.parametrize("name", SEARCHED)
def test_a_short_search(name: str) -> None:
    """No input causes a traceback, a hang or an unexpected message."""

    @short
    @given(inputs(name))
    def probe(content: bytes) -> None:
        PROBES[name](content)

    probe()


@pytest.mark.parametrize("name", ["config.yml", "web.yml"])
def test_a_secret_in_its_place(name: str) -> None:
    """Nothing printed or logged repeats what stands where a secret belongs, in whatever form."""
    for content in with_secrets(name):
        PROBES["secrets"](content)
