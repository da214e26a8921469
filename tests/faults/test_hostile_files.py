"""Configuration files that are made to break their reader, beside what people get wrong."""

import os
from pathlib import Path

import pytest

from exporter import app
from exporter.config import Overrides
from exporter.errors import ConfigurationError
from exporter.web import webfile


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    """What is waited for, or has no end, is not read to it, be it a certificate."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        for read in (lambda path: app.load(path, Overrides()), webfile.load):
            with pytest.raises(ConfigurationError) as caught:
                read(path)
            assert str(caught.value) == f"{path}: cannot be read: it is not a regular file"
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: /dev/zero, key_file: /dev/zero}")
    with pytest.raises(ConfigurationError) as caught:
        webfile.load(file)
    problem = "the file cannot be read: it is not a regular file"
    assert str(caught.value) == f"{file}:1: tls_server_config.cert_file: {problem}"
