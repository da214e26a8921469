"""Discovery of the endpoint, with lease files as DHCP clients write them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Imds
from exporter.imds import discovery
from exporter.imds.client import client_of
from exporter.imds.discovery import discover_endpoint
from tests.clocks import HandClock

DHCLIENT = 'lease {{\n  interface "eth0";\n  option unknown-245 {};\n  option routers 10.0.0.1;\n}}\n'
NETWORKD = "# This is private data. Do not parse.\nADDRESS=10.0.0.4\nOPTION_245={}\nOPTION_12=6162\n"
STATIC = "http://169.254.169.254"
WIRE_SERVER = "http://168.63.129.16"


def write(path: Path, text: str, *, age: float = 0.0) -> Path:
    """Write a lease file that was last changed ``age`` seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (2e9 - age, 2e9 - age))
    return path


@pytest.mark.parametrize(
    ("form", "value", "endpoint"),
    [
        (DHCLIENT, "a8:3f:81:10", WIRE_SERVER),
        (DHCLIENT, "A8:3F:81:10", WIRE_SERVER),
        (DHCLIENT, "0a:00:0:1", "http://10.0.0.1"),
        ("# option unknown-245 {0};\n#OPTION_245={0}\n", "0a:00:00:01", STATIC),
        (NETWORKD, "a83f8110", WIRE_SERVER),
        (NETWORKD, " A83F8110 ", WIRE_SERVER),
    ],
)
def test_forms_of_the_option(tmp_path: Path, form: str, value: str, endpoint: str) -> None:
    """Every form in which a DHCP client writes the option gives the address."""
    write(tmp_path / "leases" / "2", form.format(value))
    assert discover_endpoint([tmp_path / "leases"]) == endpoint


@pytest.mark.parametrize(
    "value",
    [
        *("", "a8:3f:81", "a8:3f:81:10:ff", "a83f81", "a8:3f:81:zz", "a8:3f:81:10; option x", "ä:ö:ü:ß"),
        *("00000000", "ffffffff", "e0:0:0:1", "7f:0:0:1", "10.0.0.1", '"', '"\\"'),
    ],
)
def test_malformed_value(tmp_path: Path, value: str, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is not a server's address is passed over, for an older lease or the static address."""
    path = write(tmp_path / "leases" / "2", NETWORKD.format(value))
    assert discover_endpoint([tmp_path / "leases"]) == STATIC
    assert [str(path)] == [record.__dict__["path"] for record in caplog.records]
    write(path, NETWORKD.format("0a000001") + NETWORKD.format(value))
    assert discover_endpoint([tmp_path / "leases"]) == "http://10.0.0.1"


def test_the_newest_lease_counts(tmp_path: Path) -> None:
    """The file written last counts, in whichever folder, and of it the end, with the last lease."""
    write(tmp_path / "a" / "old.lease", DHCLIENT.format("0a:00:00:01"), age=60)
    leases = [
        DHCLIENT.format("0a:00:00:02"),
        "\n" * 3_000_000,
        DHCLIENT.format("0a:00:00:03"),
        "lease {\n}\n",
    ]
    write(tmp_path / "leases" / "2", "".join(leases), age=30)
    write(tmp_path / "a" / "none.lease", "lease {\n}\n")
    folders = [tmp_path / name for name in ("missing", "a", "leases")]
    assert discover_endpoint(folders) == "http://10.0.0.3"


def test_nothing_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that are not leases, and folders and pipes of such names, are left alone, without a warning."""
    write(tmp_path / "secret_key", DHCLIENT.format("0a:00:00:01"))
    (tmp_path / "folder.leases").mkdir()
    os.mkfifo(tmp_path / "pipe.leases")
    assert discover_endpoint([tmp_path, tmp_path / "missing"]) == STATIC
    assert not caplog.records


def test_unreadable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that may not be read is named in a warning, as is a folder that is none; others are tried."""
    write(tmp_path / "old.lease", DHCLIENT.format("0a:00:00:01"), age=60)
    barred = write(tmp_path / "new.lease", DHCLIENT.format("0a:00:00:02"))
    hidden = write(tmp_path / "hidden.lease", DHCLIENT.format("0a:00:00:03"))
    really_open, really_stat = Path.open, Path.stat

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self == barred:
            raise PermissionError(13, "Permission denied", str(self))
        return really_open(self, *args, **kwargs)  # type: ignore[call-overload]  # passed through as it came

    def hide(self: Path, **kwargs: bool) -> os.stat_result:
        if self == hidden:
            raise PermissionError(13, "Permission denied", str(self))
        return really_stat(self, **kwargs)

    # Not by chmod: tests may run as root, whom no permission bars.
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "stat", hide)
    assert discover_endpoint([barred, tmp_path]) == "http://10.0.0.1"
    facts = [(record.__dict__["path"], record.__dict__["problem"]) for record in caplog.records]
    denied = "Permission denied"
    assert facts == [(str(barred), "Not a directory"), (str(hidden), denied), (str(barred), denied)]


def test_leases_are_read_only_where_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured address is used as it is."""
    monkeypatch.setattr(discovery, "discover_endpoint", lambda: "http://10.0.0.1")
    endpoints = [client_of(Imds(endpoint=one), HandClock()).endpoint for one in ("http://a", "discover")]
    assert endpoints == ["http://a", "http://10.0.0.1"]


@given(st.binary(max_size=40), st.sampled_from([b"OPTION_245=", b"option unknown-245 ", b""]))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, junk: bytes, prefix: bytes) -> None:
    """Whatever a lease file holds, there is an endpoint."""
    folder = tmp_path_factory.getbasetemp() / "junk"
    folder.mkdir(exist_ok=True)
    (folder / "junk.lease").write_bytes(prefix + junk + b";\n")
    assert discover_endpoint([folder]).startswith("http://")
