"""Inputs for the probes: the corpus, and recombinations of its parts."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.builders import raw_event
from tests.docs.pages import sample

CORPUS = Path(__file__).parent / "corpus"
# Stands wherever a secret may stand.
CANARY = "h4nd3lC4n4ry77"
_URL = f"json://alice:p@{CANARY}@{CANARY}.example/{CANARY}"
# What may have come to stand where a secret belongs.
_MISPLACED = (
    CANARY,
    _URL,
    f"'{_URL}'",
    f"https://alice:{CANARY}@example.com/events",
    f"json//{CANARY}",
    f"{CANARY}://a",
    f"${{{CANARY}:-{_URL}}}",
    f"!{CANARY} x",
    f"*{CANARY}",
    f"&{CANARY} x",
    f"[{CANARY}]",
    f"[/bin/curl -u alice:{CANARY} https://example.com]",
    f"{{alice: {_URL}}}",
    f'"{_URL}',
    f'"\\q{CANARY}"',
    f"{{{{ {CANARY} }}}}",
    f"'{{{{ {CANARY} }}}}'",
    f"'{{{{ event.{CANARY} }}}}'",
    f"'{{% {CANARY} %}}'",
    f"!!int {CANARY}",
    f"!!binary {CANARY}=",
)

_SECRET_KEYS = ("url", "urls", "webhook", "headers", "basic_auth_users")

_JSON = rb"""{ } [ ] , : " \ null true -1 0 1e999 9999999999999999999 "\ud800" "\ud83d\ude00" "\u0000" NaN"""
_YAML = rb"""!!binary !!set !!omap !!pairs !!timestamp !!int !!float !!null !!bool !!merge !!str !!seq !!map
    !!python/object:os.system !<tag:yaml.org,2002:int> &a *a <<: ? --- ... %YAML %TAG |2- >+ "\x00" "\ud800"
    "\ud83d\ude00" "\U00110000" "\e[2J" .inf .nan 1e999 0x1F 0b1 1_000 190:20:30 ~ = '' 2020-01-01T00:00:00Z
    ${HOME} [ ] { } , : - #"""
_HTTP = rb"""GET POST HEAD TRACE CONNECT get / // /metrics /-/reload /-/%2e%2e/ /../ %00 %ff %zz ?name[]= ?# *
    http://x/ HTTP/1.1 HTTP/1.0 HTTP/9.9 Host: Content-Length: 5 -1 99999999999 Transfer-Encoding: chunked
    gzip hello 0 ffffffffffffffff ;ext=1 Expect: 100-continue Connection: close upgrade Upgrade: websocket h2c
    Authorization: Basic Bearer YWxpY2U6c2VjcmV0 YWxpY2U6 ==== Accept: application/openmetrics-text;version=
    1.0.0 ;escaping= ;q= Accept-Encoding: gzip;q="""
_BREAKS = [
    *(b" ", b"\n", b"\r\n", b"\r\n\r\n", b"\r", b"\t", b":", b"\0"),
    *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8"),
    *(b"5\r\nhello\r\n", b"0\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"),  # chunks, and TLS
]
# The languages of the probes that get random inputs.
_LANGUAGES = {
    "documents": _JSON,
    "configurations": _YAML,
    "web-configurations": _YAML,
    "requests": _HTTP,
}
SEARCHED = tuple(_LANGUAGES)


def with_secrets(name: str) -> Iterator[bytes]:
    """Make ``config.yml`` or ``web.yml`` with each of the forms in each place that can hold a secret."""
    text = sample() if name == "config.yml" else (CORPUS / "web-configurations" / "full.yml").read_text()
    for start, end in _secret_places(yaml.compose(text)):
        for form in _MISPLACED:
            # A block ends with its last line break, which belongs to what follows.
            last = end - len(text[start:end]) + len(text[start:end].rstrip())
            yield (text[:start] + form + text[last:]).encode()


def _secret_places(node: Any, is_secret: bool = False) -> Iterator[tuple[int, int]]:
    """Return where the values of keys that can hold a secret begin and end, and those within them."""
    if is_secret:
        yield node.start_mark.index, node.end_mark.index
    if node.id == "mapping":
        for key, value in node.value:
            yield from _secret_places(value, is_secret or key.value in _SECRET_KEYS)
    elif node.id == "sequence":
        for value in node.value:
            yield from _secret_places(value, is_secret)


@cache
def corpus(name: str) -> tuple[tuple[str, bytes], ...]:
    """Return the inputs that are kept for a probe, with the names of their files."""
    files = sorted((CORPUS / name).iterdir())
    return tuple((file.name, file.read_bytes()) for file in files)


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Make inputs for a probe: pieces of the corpus and words of the language, in any order and number."""
    whole = [content for _, content in corpus(name)]
    words = sorted({word for content in whole for word in re.findall(rb"\w+|[^\w\s]+|\s+", content)})
    known = (_LANGUAGES[name].split(), _BREAKS, words)
    piece = st.one_of(*map(st.sampled_from, known), st.binary(max_size=8))
    built = st.lists(piece, max_size=25).map(b"".join)
    ways = _damaged(whole, piece) | built
    return ways | _documents() if name == "documents" else ways


@st.composite
def _damaged(draw: st.DrawFn, whole: list[bytes], piece: st.SearchStrategy[bytes]) -> bytes:
    """Take an input of the corpus, and put something in the place of some of it, several times."""
    content = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = start + draw(st.sampled_from((0, 1, 4, 20)))
        content = content[:start] + draw(piece) + content[end:]
    return content


def _documents() -> st.SearchStrategy[bytes]:
    """Make documents that are JSON, with any text in any field: halves of characters and controls too."""
    texts = st.text(st.characters(exclude_categories=()), max_size=12)
    odd = texts | st.none() | st.integers() | st.floats() | st.lists(texts, max_size=3)
    fields = st.dictionaries(st.sampled_from(sorted(raw_event())), odd, max_size=4)
    events = st.lists(fields.map(lambda found: raw_event(**found)), max_size=4)
    return events.map(lambda found: json.dumps({"DocumentIncarnation": 2, "Events": found}).encode())
