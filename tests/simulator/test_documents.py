"""The documents over HTTP: of events and of facts about the VM, by version; parts, formats, entity tags."""

import uuid

import pytest

from exporter.simulator import Simulator
from exporter.simulator.documents import EVENTS_VERSIONS, INSTANCE_VERSIONS, instance_document
from tests.simulator.support import NEWEST, Client

INSTANCE = "/metadata/instance"
VERSION = "2021-12-13"


def test_each_version_has_its_fields_and_types(client: Client) -> None:
    """Versions add the fields in Azure's table; the first needs no header, and prefixes VMs' names with _."""
    fields, kinds = {}, {}
    for version in EVENTS_VERSIONS:
        events = client.ask(params={"api-version": version}).json()["Events"]
        fields[version] = len(events[0])
        kinds[version] = len(events)
    assert list(fields.values()) == [6, 6, 6, 6, 7, 8, 9, 9]
    assert list(kinds.values()) == [3, 3, 4, 5, 5, 5, 5, 6]
    preview = client.ask(headers={}, params={"api-version": "2017-03-01"})
    assert preview.json()["Events"][0]["Resources"] == ["_vm_0"]


def test_the_instance_document_names_the_vm(client: Client) -> None:
    """It contains the fields that clients read."""
    compute = client.ask(INSTANCE, params={"api-version": "2021-12-13"}).json()["compute"]
    assert (compute["name"], compute["vmScaleSetName"]) == ("vm_0", "vm")
    assert str(uuid.UUID(compute["vmId"])) == compute["vmId"]
    assert str(uuid.UUID(compute["subscriptionId"])) == compute["subscriptionId"]
    assert {"resourceGroupName", "location", "zone", "vmSize", "tags"} <= set(compute)
    others = [instance_document(name)["compute"] for name in ("Vm_1007", "vm")]
    facts = [(one["platformFaultDomain"], one["osProfile"]["computerName"]) for one in others]
    assert facts == [("2", "vm0000rz"), ("0", "vm")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("compute/name", "vm_0"),
        ("compute/name/", "vm_0"),
        ("compute/osProfile/computerName", "vm000000"),
        ("compute/tagsList/0/value", "demo"),
        ("network/interface/0/ipv4/ipAddress/0/privateIpAddress", "10.0.0.4"),
        ("compute/tagsList", "0/"),
        ("", "compute/\nnetwork/"),
    ],
)
def test_parts_as_text(client: Client, path: str, text: str) -> None:
    """A value is returned as it is, and an object as the list of its keys."""
    answer = client.ask(f"{INSTANCE}/{path}", params={"api-version": VERSION, "format": "text"})
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["content-type"].startswith("text/plain")


def test_parts_as_json(client: Client) -> None:
    """A part of the document is JSON; a value alone is refused, and an unknown path is not found."""
    whole = client.ask(INSTANCE, params={"api-version": VERSION}).json()
    assert client.ask(f"{INSTANCE}/compute", params={"api-version": VERSION}).json() == whole["compute"]
    refused = client.ask(f"{INSTANCE}/compute/name", params={"api-version": VERSION})
    assert (refused.status_code, "add format=text" in refused.json()["error"]) == (400, True)
    for path in ("compute/nothing", "compute/name/more", "compute/tagsList/7", "compute/tagsList/x"):
        assert client.ask(f"{INSTANCE}/{path}", params={"api-version": VERSION}).status_code == 404


def test_each_version_has_its_facts(client: Client) -> None:
    """Each field exists in all versions from the one that introduced it."""
    known: set[str] = set()
    for version in INSTANCE_VERSIONS:
        compute = client.ask(INSTANCE, params={"api-version": version}).json()["compute"]
        assert known <= set(compute)
        known = set(compute)
    old = client.ask(INSTANCE, params={"api-version": "2017-08-01"}).json()["compute"]
    assert {"name", "tags", "vmId"} <= set(old)
    assert not {"tagsList", "resourceId", "zone", "osProfile", "azEnvironment"} & set(old)


def test_versions(client: Client) -> None:
    """The list of versions requires the header, and no version."""
    answer = client.ask("/metadata/versions", params={})
    assert answer.json() == {"apiVersions": list(INSTANCE_VERSIONS)}
    assert client.ask("/metadata/versions", headers={}, params={}).status_code == 400
    assert client.ask("/metadata/versions", "POST", params={}).status_code == 405


@pytest.mark.parametrize(
    ("path", "version"), [("/metadata/scheduledevents", NEWEST), (f"{INSTANCE}/compute", VERSION)]
)
def test_entity_tags(client: Client, simulator: Simulator, path: str, version: str) -> None:
    """A client that has the document gets 304 without a body, until the document changes."""

    def ask(tag: str) -> tuple[int, bytes]:
        headers = {"Metadata": "true", "If-None-Match": tag}
        answer = client.ask(path, headers=headers, params={"api-version": version})
        return answer.status_code, answer.content

    tag = client.ask(path, params={"api-version": version}).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        assert ask(known) == (304, b"")
    assert ask('"other"')[0] == 200
    simulator.clear()
    assert ask(tag)[0] == (200 if "scheduledevents" in path else 304)
