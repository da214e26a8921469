"""Attacks on the running program: first floods of clients, then with every feature on, in 160 MiB of memory.

A flood shows how long a scrape and a probe with a password take while clients without one attack. Then each
attack is tried alone, and all at once.

Where root may make a memory cgroup, the program, its sender process and its hooks run in one. The kernel ends
processes there if they take more: first children of the sender process, which loses no message. The exporter
must not be ended. Everywhere, the memory of exporter and senders is sampled.

SIEGE_SECONDS=20 python -m tests.slow.siege
"""

import base64
import contextlib
import functools
import gzip
import itertools
import json
import os
import re
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

import bcrypt

from tests.builders import body, raw_event
from tests.end_to_end.program import children, eventually, proportional
from tests.faults.documents import LARGEST, Listed, largest
from tests.http_server import Connection, Request, answer, serving
from tests.outputs.kubernetes.api import NODE, Api, served
from tests.slow.attackers import attacked
from tests.slow.running import Running, running
from tests.web.certificates import Pki

LIMIT_MIB = 160
STATE_MIB = 16
_PAUSE = 0.1
_CONFIGURATION = """
imds: {poll_interval: 200ms}
metrics: {events: all, resources: true}
notifications:
  targets: [{name: chat, url: "json://RECEIVER"}, {name: automation, webhook: "http://RECEIVER/events"}]
  routes: [{match: {target: any}, targets: [chat, automation]}]
  templates: {title: "{{ event.type }}", body: "{{ event.description * 100 }}"}
approval: {mode: 'on', leader: any, rules: [{name: all, action: approve, require_hooks: [note]}]}
hooks: [{name: note, command: ["true"]}]
tracing: {enabled: true}
kubernetes: {node: NODE, service_account: "ACCOUNT", drain: {enabled: true}}
"""
_LARGE_PODS = "large pods"
_PODS = 20  # as many as are asked for at once
_POD_BYTES = 1_700_000  # etcd stores no larger ones
_ATTACKERS = 140  # of each kind
_FLOODS = ("get", "pipeline", "keep_silent", "drip", "guess")
_CLIENTS = {False: ("scrape", "send_half"), True: ("shake_hands", "guess")}  # by whether it has TLS


@functools.cache
def _bombs() -> tuple[bytes, bytes]:
    """Return two answers of 408 kB, a success and an error, which are 400 MiB when unpacked."""
    # Not at the import: the processes of the attackers import this module, too.
    bomb = answer(gzip.compress(bytes(400 * 2**20), 9), headers="Content-Encoding: gzip\r\n")
    return bomb, bomb.replace(b"200 OK", b"503 No", 1)


def _new_ids(number: int) -> bytes:
    """Return 14 events that were never there, with descriptions of 65 kB."""
    found = [raw_event(EventId=f"{number}-{n}", Description="\u20ac" * 10_800) for n in range(14)]
    return answer(body(*found, incarnation=number))


def _many(number: int) -> bytes:
    """Return 2,000 events, other ones each time."""
    types = ("Reboot", "Freeze", "Terminate")
    found = [raw_event(EventId=f"{number}-{n:06}", EventType=types[n % 3]) for n in range(2000)]
    return answer(body(*found, incarnation=number))


def _reboot(number: int) -> bytes:
    """Return a Reboot of this VM in an hour or two: the drain meets large pods, half of which stay."""
    at = datetime.now(UTC).replace(minute=0, second=0) + timedelta(hours=2)
    fields = {"EventType": "Reboot", "NotBefore": format_datetime(at, usegmt=True)}
    return answer(body(raw_event(EventId="reboot", **fields), incarnation=number))


def _whole(listed: Listed) -> Callable[[int], bytes]:
    return lambda number: answer(largest(listed, number))


_DOCUMENTS: dict[str, Callable[[int], bytes]] = {
    "new ids": _new_ids,
    "many events": _many,
    "a gzip bomb": lambda number: _bombs()[number % 2],
    _LARGE_PODS: _reboot,
    **{listed.__name__: _whole(listed) for listed in LARGEST},
}


class Cage(NamedTuple):
    """A memory cgroup; without ``path`` there is none, and nothing is limited."""

    path: Path | None

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before a command by which it runs here."""
        if self.path is None:
            return ()
        return ("sh", "-c", f'echo $$ > {self.path}/cgroup.procs; exec "$@"', "sh")

    @property
    def kills(self) -> int:
        """How many processes the kernel has ended here."""
        if self.path is None:
            return 0
        text = "".join(
            (self.path / name).read_text()
            for name in ("memory.oom_control", "memory.events")
            if (self.path / name).exists()
        )
        # Not every kernel counts them in version 1.
        found = re.search(r"^oom_kill (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def caged() -> Iterator[Cage]:
    """Make a cgroup of `LIMIT_MIB`, of either version, where that is possible."""
    for root, name in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        path = Path(root, f"siege-{os.getpid()}")
        with contextlib.suppress(OSError):
            path.mkdir()
        if (path / name).exists():
            (path / name).write_text(str(LIMIT_MIB * 2**20))
            try:
                yield Cage(path)
            finally:
                # Its processes may take a moment to end.
                eventually(lambda path=path: path.rmdir() is None)  # type: ignore[misc]
            return
        with contextlib.suppress(OSError):
            path.rmdir()
    yield Cage(None)


class Memory(threading.Thread):
    """Samples the memory of exporter and senders, and the state file, until `stop`.

    What forked processes share counts once (PSS).
    """

    def __init__(self, pid: int, state: Path) -> None:
        super().__init__(name="memory")
        self._pid, self._file = pid, state / "state.db"
        self._stopped = threading.Event()
        self.exporter = self.sender = self.together = self.state = 0.0
        self.start()

    def run(self) -> None:
        """Keep the highest values."""
        while not self._stopped.wait(_PAUSE):
            # A process that has ended has no figures.
            with contextlib.suppress(OSError, IndexError):
                exporter, sender = proportional(self._pid), sum(map(proportional, _senders(self._pid)))
                self.exporter, self.sender = max(self.exporter, exporter), max(self.sender, sender)
                self.together = max(self.together, exporter + sender)
                self.state = max(self.state, self._file.stat().st_size / 2**20)

    def stop(self) -> None:
        """Take no more samples."""
        self._stopped.set()
        self.join()


def _senders(pid: int) -> list[int]:
    """Return the sender process of an exporter, and its children."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            if b"sender-process" in Path(f"/proc/{child}/cmdline").read_bytes():
                found += [child, *children(child)]
    return found


class Siege(NamedTuple):
    """Figures of a siege: the most memory and the largest state file, both in MiB.

    ``probe`` is the longest time of a probe, in seconds. ``is_caged`` is whether the kernel limited the
    memory. ``kills`` is how many processes besides the exporter it ended for it, and ``senders`` how many of
    them were the sender process; the others are children of it.
    """

    exporter: float
    sender: float
    together: float
    state: float
    probe: float
    kills: int
    senders: int
    is_caged: bool


def besiege(folder: Path, seconds: float, attacks: Sequence[str], *, secure: bool) -> Siege:
    """Attack the program for some seconds with each kind of document, and see that it recovers.

    With ``secure`` it has TLS and passwords.

    Raises:
        AssertionError: it ended, was ended, or does not work afterwards.
    """

    def receive(connection: Connection, _: Request) -> None:
        connection.send(bombs[next(turns) % 3 == 0])

    turns, bombs = itertools.count(), _bombs()
    flags, authorization, tls = _secured(folder) if secure else ((), "", None)
    account, api = folder / "account", Api()
    account.mkdir()
    for name in (f"large-{number:02}" for number in range(_PODS)):
        api.pod(name, size=_POD_BYTES)
    # A budget keeps them, so that the drain goes on.
    api.protected = set(sorted(api.pods)[::2])
    with caged() as cage, serving(receive) as receiver, served(api, account) as cluster:
        text = _CONFIGURATION.replace("RECEIVER", receiver.url.removeprefix("http://"))
        text = text.replace("NODE", NODE).replace("ACCOUNT", str(account))
        start = functools.partial(
            running,
            folder,
            *flags,
            config=text,
            authorization=authorization,
            tls=tls,
            prefix=cage.prefix,
            environ={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url} | cluster,
        )
        with start() as program:
            memory = Memory(program.process.pid, folder / "state")
            clients = [one for one in _CLIENTS[secure] if one in attacks]
            probe = _attack(
                program, seconds, clients, [_DOCUMENTS[one] for one in attacks if one in _DOCUMENTS]
            )
            if _LARGE_PODS in attacks:
                eventually(lambda: api.graces.keys() == api.pods.keys() - api.protected)
            _honest(program)
            memory.stop()
            senders = program.stop().count("the sender process ended")
        with start() as program:
            _honest(program)
            program.stop()
        kills, is_caged = cage.kills, cage.path is not None
    figures = memory.exporter, memory.sender, memory.together, memory.state
    return Siege(*figures, probe, kills, senders, is_caged)


class Flood(NamedTuple):
    """The longest times of a scrape and of a probe in seconds, the number of each, and the most MiB."""

    scrape: float
    probe: float
    times: int
    memory: float


def flood(folder: Path, seconds: float, kind: str, *, secure: bool) -> Flood:
    """Scrape and probe with a password, each over a new connection, while clients without one attack.

    Raises:
        OSError, AssertionError: one of them failed.
    """
    flags, authorization, tls = _secured(folder, with_tls=secure)
    with running(folder, *flags, authorization=authorization, tls=tls) as program:
        memory, idle = Memory(program.process.pid, folder / "state"), program.files()
        longest, count = {"/metrics": 0.0, "/-/healthy": 0.0}, 0
        with attacked(kind, program.port, _ATTACKERS, secure=secure):
            eventually(lambda: program.files() > idle + 8)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for path, before in longest.items():
                    begun = time.monotonic()
                    program.get(path)
                    longest[path] = max(before, time.monotonic() - begun)
                count += 1
                time.sleep(_PAUSE)
        memory.stop()
        program.stop()
    return Flood(longest["/metrics"], longest["/-/healthy"], count, memory.exporter)


def _secured(folder: Path, *, with_tls: bool = True) -> tuple[tuple[str, ...], str, ssl.SSLContext | None]:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(10)).decode()
    content: dict[str, dict[str, str]] = {"basic_auth_users": {"prom": hashed}}
    context = None
    if with_tls:
        Pki.make(folder)
        content["tls_server_config"] = {"cert_file": "cert.pem", "key_file": "key.pem"}
        context = ssl.create_default_context(cafile=folder / "ca.pem")
    (folder / "web.yml").write_text(json.dumps(content))
    authorization = "Basic " + base64.b64encode(b"prom:right").decode()
    return ("--web.config.file", str(folder / "web.yml")), authorization, context


def _attack(
    program: Running, seconds: float, clients: Iterable[str], documents: Sequence[Callable[[int], bytes]]
) -> float:
    """Return the longest time of a probe."""
    numbers, longest, idle = itertools.count(1000), 0.0, program.files()
    with contextlib.ExitStack() as stack:
        for kind in clients:
            stack.enter_context(attacked(kind, program.port, _ATTACKERS, secure=program.tls is not None))
            eventually(lambda: program.files() > idle + 16)
        for make in documents or [_new_ids]:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                program.documents[0] = make(next(numbers))
                begun = time.monotonic()
                # As a kubelet does, which takes one failure for none.
                eventually(lambda: program.process.poll() is not None or program.get("/-/healthy"))
                assert program.process.poll() is None, f"status {program.process.returncode}"
                longest = max(longest, time.monotonic() - begun)
                time.sleep(_PAUSE)
    return longest


def _honest(program: Running) -> None:
    """Show a document as Azure writes it; it is all that is pending then."""
    program.show(body(raw_event(EventId="honest"), incarnation=7), 7)
    # Renderings for the attackers may still be in work.
    listed = json.loads(eventually(lambda: program.get("/api/v1/events")))["current"]
    assert [one["id"] for one in listed] == ["honest"]


def main() -> int:
    """Try each flood, and each attack alone, then all at once; return the exit status."""
    seconds = float(os.environ.get("SIEGE_SECONDS") or 20)
    for secure in (False, True):
        for kind in (*_FLOODS, *(["shake_hands"] if secure else [])):
            _flood(seconds, kind, secure=secure)
    held = []
    for secure in (False, True):
        every = [*_DOCUMENTS, *_CLIENTS[secure]]
        held += [_holds(seconds, attacks, secure=secure) for attacks in [*([one] for one in every), every]]
    return 0 if all(held) else 1


def _flood(seconds: float, kind: str, *, secure: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="siege-") as folder:
        found = flood(Path(folder), seconds, kind, secure=secure)
    sys.stdout.write(
        f"{_ATTACKERS} clients, {kind}, {'over' if secure else 'without'} TLS: of {found.times} the slowest "
        f"scrape {found.scrape:.2f} s, probe {found.probe:.2f} s; exporter {found.memory:.1f} MiB at most\n"
    )
    sys.stdout.flush()


def _holds(seconds: float, attacks: Sequence[str], *, secure: bool) -> bool:
    with tempfile.TemporaryDirectory(prefix="siege-") as folder:
        found = besiege(Path(folder), seconds, attacks, secure=secure)
    how = "with TLS and passwords" if secure else "open to all"
    cage = f"in a cgroup of {LIMIT_MIB} MiB" if found.is_caged else "without a cgroup"
    sys.stdout.write(
        f"{' + '.join(attacks)}; {how}, {cage}: exporter {found.exporter:.0f} MiB at most, sender "
        f"{found.sender:.0f} (together {found.together:.0f}; the kernel ended the sender process "
        f"{found.senders} times, children of it {found.kills - found.senders} times), "
        f"state {found.state:.1f} MiB, slowest probe {found.probe:.2f} s\n"
    )
    sys.stdout.flush()
    # In a cgroup, an exporter that took too much would have been ended, which `besiege` raises.
    is_too_much = not found.is_caged and found.together > LIMIT_MIB
    return not is_too_much and found.state <= STATE_MIB


if __name__ == "__main__":
    sys.exit(main())
