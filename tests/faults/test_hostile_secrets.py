"""Mistakes that people make in configurations with secrets: nothing that is printed or logged repeats one."""

import pytest

from tests.faults.fuzz_inputs import with_secrets
from tests.faults.fuzz_probes import secrets

# Of the 2,000 that `make fuzz` tries.
SEEDS = range(0, 2000, 25)


@pytest.mark.parametrize("name", ["config.yml", "web.yml"])
def test_a_secret_in_any_place(name: str) -> None:
    """Secrets as the value of any key, in any form, and as any key, also in damaged files."""
    for seed in SEEDS:
        secrets(with_secrets(name, seed))
