"""Inputs for the probes: the corpus, and recombinations of its parts."""

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.builders import raw_event
from tests.deploy.test_deploy import uncommented

CORPUS = Path(__file__).parent / "corpus"
# Stands wherever a secret may stand.
CANARY = "h4nd3lC4n4ry77"
_URL = f"json://alice:p@{CANARY}@{CANARY}.example/{CANARY}"
# What may have come to stand in the place of any value or key.
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
    f"{{{CANARY}: {_URL}}}",
    f'"{_URL}',
    f'"\\q{CANARY}"',
    f"{{{{ {CANARY} }}}}",
    f"'{{{{ {CANARY} }}}}'",
    f"'{{{{ event.{CANARY} }}}}'",
    f"'{{% {CANARY} %}}'",
    f"!!int {CANARY}",
    f"!!binary {CANARY}=",
)

# Where an error names what does not exist.
_NAMED = ("targets", "event_types")

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
_LANGUAGES = {
    "documents": _JSON,
    "configurations": _YAML,
    "web-configurations": _YAML,
    "secrets": _YAML,
    "requests": _HTTP,
}


@cache
def _sample(name: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a valid file, and where its keys and values begin and end."""
    text = uncommented() if name == "config.yml" else (CORPUS / "web-configurations" / "full.yml").read_text()
    return text, list(_scalars(yaml.compose(text)))


def _scalars(node: Any) -> Iterator[tuple[int, int]]:
    if node.id == "scalar":
        yield node.start_mark.index, node.end_mark.index
        return
    for child in node.value:
        key, value = child if isinstance(child, tuple) else (None, child)
        if key is not None:
            yield from _scalars(key)
            if key.value in _NAMED and value.value[0].id == "scalar":
                continue
        yield from _scalars(value)


def with_secrets(name: str, seed: int) -> bytes:
    """Return ``config.yml`` or ``web.yml`` with secrets in wrong places; every other one is damaged, too."""
    chance = random.Random(f"{name} {seed}")
    text, places = _sample(name)
    chosen = {places[seed // 2 % len(places)], *chance.sample(places, chance.choice((0, 0, 1, 3)))}
    for start, end in sorted(chosen, reverse=True):
        text = text[:start] + chance.choice(_MISPLACED) + text[end:]
    content = text.encode()
    for _ in range(seed % 2 and chance.randint(1, 4)):
        start = chance.randrange(len(content))
        piece = chance.choice((b"", *_BREAKS, *_YAML.split(), content[start : start + 40]))
        content = content[:start] + piece + content[start + chance.choice((0, 1, 4, 20)) :]
    return content


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
