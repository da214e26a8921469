"""Discovery of the endpoint, with lease files as DHCP clients write them."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.imds.discovery import _address_in, discover_endpoint

DHCLIENT = """lease {{
  interface "eth0";
  fixed-address 10.0.0.4;
  option subnet-mask 255.255.255.0;
  option unknown-245 {value};
  option routers 10.0.0.1;
  renew 1 2026/11/02 10:00:00;
}}
"""
NETWORKD = """# This is private data. Do not parse.
ADDRESS=10.0.0.4
SERVER_ADDRESS=168.63.129.16
OPTION_245={value}
OPTION_12=6162
"""


def write(path: Path, text: str, *, age: float = 0.0) -> Path:
    """Write a lease file that was last changed ``age`` seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (2e9 - age, 2e9 - age))
    return path


@pytest.mark.parametrize(
    "value",
    [
        "a8:3f:81:10",
        "A8:3F:81:10",
        '"a8:3f:81:10"',
        r'"\250?\201\020"',
        "168.63.129.16",
        '"168.63.129.16"',
        "0xa83f8110",
        "  a8:3f:81:10 ",
    ],
)
def test_dhclient_value(tmp_path: Path, value: str) -> None:
    """Every form in which dhclient writes the option's value gives the same address."""
    path = write(tmp_path / "dhclient.eth0.leases", DHCLIENT.format(value=value))
    found = discover_endpoint([tmp_path])
    assert found.endpoint == "http://168.63.129.16"
    assert found.source == f"DHCP option 245 in {path} says 168.63.129.16"


@pytest.mark.parametrize(
    "option", ["unknown-245", "option-245", "private-245", "wireserver", "ms-wireserver", "azure-wire-server"]
)
def test_dhclient_name(tmp_path: Path, option: str) -> None:
    """The option is known by the names that dhclient and administrators give it."""
    write(tmp_path / "dhclient.leases", f"lease {{\n\toption {option} 0a:00:0:1;\n}}\n")
    assert discover_endpoint([tmp_path]).endpoint == "http://10.0.0.1"


def test_value_holding_a_quote_and_a_semicolon(tmp_path: Path) -> None:
    """Bytes of the address that happen to be punctuation are read as dhclient escapes them."""
    write(tmp_path / "x.lease", DHCLIENT.format(value=r'"\012;\"\\"'))
    assert discover_endpoint([tmp_path]).endpoint == "http://10.59.34.92"


@pytest.mark.parametrize("value", ["a83f8110", "A83F8110", " a83f8110 "])
def test_networkd(tmp_path: Path, value: str) -> None:
    """Leases of systemd-networkd, named by interface number, are read."""
    path = write(tmp_path / "leases" / "2", NETWORKD.format(value=value))
    found = discover_endpoint([tmp_path / "leases"])
    assert found.endpoint == "http://168.63.129.16"
    assert str(path) in found.source


def test_last_lease_wins(tmp_path: Path) -> None:
    """Of several leases in a file the last that carries the option counts."""
    leases = (DHCLIENT.format(value=value) for value in ("0a:00:00:01", "0a:00:00:02"))
    write(tmp_path / "x.leases", "".join(leases) + "lease {\n  fixed-address 10.0.0.4;\n}\n")
    assert discover_endpoint([tmp_path]).endpoint == "http://10.0.0.2"


def test_newest_file_first(tmp_path: Path) -> None:
    """The file written last counts, in whichever folder it is."""
    write(tmp_path / "a" / "old.lease", DHCLIENT.format(value="0a:00:00:01"), age=60)
    write(tmp_path / "leases" / "2", NETWORKD.format(value="0a000002"), age=30)
    write(tmp_path / "a" / "none.lease", "lease {\n}\n")
    assert discover_endpoint([tmp_path / "a", tmp_path / "leases"]).endpoint == "http://10.0.0.2"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a8:3f:81",
        "a8:3f:81:10:ff",
        "a83f81",
        "a8:3f:81:zz",
        "0.0.0.0",
        "255.255.255.255",
        "e0:0:0:1",
        "127.0.0.1",
        '"',
        '"\\"',
        "999.1.1.1",
        "a8:3f:81:10; option x",
        "ä:ö:ü:ß",
    ],
)
def test_malformed_value(tmp_path: Path, value: str, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is not a server's address is passed over, for an older lease or the static address."""
    write(tmp_path / "leases" / "2", NETWORKD.format(value=value))
    assert discover_endpoint([tmp_path / "leases"]).endpoint == "http://169.254.169.254"
    assert [str(tmp_path / "leases" / "2")] == [record.__dict__["path"] for record in caplog.records]
    assert caplog.records[0].levelno == logging.WARNING
    write(tmp_path / "leases" / "2", NETWORKD.format(value="0a000001") + NETWORKD.format(value=value))
    assert discover_endpoint([tmp_path / "leases"]).endpoint == "http://10.0.0.1"


def test_nothing_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without any lease the static address is used, and the sentence has the searched folders."""
    found = discover_endpoint([tmp_path, tmp_path / "missing"])
    assert found.endpoint == "http://169.254.169.254"
    assert found.source == f"no DHCP option 245 in {tmp_path}, {tmp_path}/missing: the static address is used"
    assert not caplog.records


def test_other_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that are no leases, comments, and folders and pipes of such names, are left alone."""
    write(tmp_path / "secret_key", DHCLIENT.format(value="0a:00:00:01"))
    write(tmp_path / "x.leases", "# option unknown-245 0a:00:00:01;\n#OPTION_245=0a000001\n")
    (tmp_path / "folder.leases").mkdir()
    os.mkfifo(tmp_path / "pipe.leases")
    assert discover_endpoint([tmp_path]).endpoint == "http://169.254.169.254"
    assert not caplog.records


def test_unreadable_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that may not be read is named in a warning, and the next one is tried."""
    write(tmp_path / "old.lease", DHCLIENT.format(value="0a:00:00:01"), age=60)
    barred = write(tmp_path / "new.lease", DHCLIENT.format(value="0a:00:00:02"))
    really_open = Path.open

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self == barred:
            raise PermissionError(13, "Permission denied", str(self))
        return really_open(self, *args, **kwargs)  # type: ignore[call-overload]  # passed through as it came

    # Not by chmod: tests may run as root, whom no permission bars.
    monkeypatch.setattr(Path, "open", refuse)
    assert discover_endpoint([tmp_path]).endpoint == "http://10.0.0.1"
    [record] = caplog.records
    assert (record.levelno, record.__dict__["path"]) == (logging.WARNING, str(barred))
    assert record.__dict__["problem"] == "Permission denied"


def test_folder_that_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that cannot be listed is named in a warning."""
    file = write(tmp_path / "file", "")
    assert discover_endpoint([file]).endpoint == "http://169.254.169.254"
    assert [record.__dict__["path"] for record in caplog.records] == [str(file)]


def test_long_file(tmp_path: Path) -> None:
    """Of a lease file that has grown without end the end is read."""
    text = DHCLIENT.format(value="0a:00:00:01") + "\n" * 3_000_000 + DHCLIENT.format(value="0a:00:00:02")
    write(tmp_path / "x.leases", text)
    assert discover_endpoint([tmp_path]).endpoint == "http://10.0.0.2"


@given(st.binary(max_size=40), st.sampled_from([b"OPTION_245=", b"option unknown-245 ", b""]))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, junk: bytes, prefix: bytes) -> None:
    """Whatever a lease file holds, nothing is raised."""
    path = tmp_path_factory.getbasetemp() / "junk.lease"
    path.write_bytes(prefix + junk + b";\n")
    _address_in(path)
