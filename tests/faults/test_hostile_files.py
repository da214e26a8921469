"""Configuration files that are made to break their reader, beside what people get wrong."""

import json
import os
import time
from pathlib import Path

import pytest

from exporter import config
from exporter.config import Overrides, loading
from exporter.errors import ConfigurationError
from exporter.web import webfile


def load(file: Path, text: str) -> config.Config:
    """Write a configuration and read it."""
    file.write_text(text)
    return loading.load(file, Overrides())


def test_json_is_read_with_its_escapes(tmp_path: Path) -> None:
    """What JSON writes as two escapes is one character, in values and in keys."""
    text = json.dumps({"approval": {"rules": [{"name": "😀 Größe", "action": "hold"}]}})
    assert "\\ud83d\\ude00" in text
    assert load(tmp_path / "c.yml", text).approval.rules[0].name == "😀 Größe"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"\\ud800"', "1: contains half of a surrogate pair; write the whole character"),
        ('\ninstance: {name: "\\udc00"}', "2: contains half of a surrogate pair; write the whole character"),
        (
            'hooks:\n- {name: "a\\ud83d", command: [b]}',
            "2: contains half of a surrogate pair; write the whole character",
        ),
        ('state: {directory: "a\\0b"}', "1: contains a NUL character; remove it"),
        ('imds: {"\\udfff": 1}', "1: contains half of a surrogate pair; write the whole character"),
        ('"\\e[2Jimds": 1', "1: �[2Jimds: unknown key; did you mean imds?"),
        ('imds: {timeout: "a\\e]0;x\\a\\u202e"}', "1: imds.timeout: 'a\\x1b]0;x"),
    ],
)
def test_texts_that_do_harm_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """An unpaired surrogate would break every scrape, and an error's text is for a terminal."""
    file = tmp_path / "c.yml"
    with pytest.raises(ConfigurationError) as caught:
        load(file, text)
    assert str(caught.value).startswith(f"{file}:{message}")
    assert str(caught.value).isprintable()


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    """What is waited for, has no end, or over 256 KiB, is not read to it, be it a certificate."""
    fifo, long = tmp_path / "fifo", tmp_path / "long.yml"
    os.mkfifo(fifo)
    long.write_text("#" * 262_145)
    not_regular = "cannot be read: it is not a regular file"
    for path, problem in (
        (fifo, not_regular),
        (Path("/dev/zero"), not_regular),
        (long, "has more than 262144 characters"),
    ):
        for read in (lambda path: loading.load(path, Overrides()), webfile.load):
            with pytest.raises(ConfigurationError) as caught:
                read(path)
            assert str(caught.value) == f"{path}: {problem}"
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: /dev/zero, key_file: /dev/zero}")
    with pytest.raises(ConfigurationError) as caught:
        webfile.load(file)
    problem = "the file cannot be read: it is not a regular file"
    assert str(caught.value) == f"{file}:1: tls_server_config.cert_file: {problem}"


@pytest.mark.parametrize(
    "piece", ["[" * 250 + "]" * 250 + ",\n", "{a: " * 100 + "1" + "}" * 100 + ",\n", "? a\n"]
)
def test_the_largest_file_is_read_in_bounded_time(tmp_path: Path, piece: str) -> None:
    """However it is nested, PyYAML's time for it, which grows with the depth, is a matter of seconds."""
    text = "[" + piece * (64 * 1024 // len(piece)) + "]"
    begun = time.thread_time()
    with pytest.raises(ConfigurationError):
        load(tmp_path / "c.yml", text)
    assert time.thread_time() - begun < 30
