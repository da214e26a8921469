"""The paths of IMDS over HTTP: refusals, approvals, limits, faults, many VMs, and documents by version."""

import time
import uuid
from typing import Any

import pytest
import requests

from exporter.errors import ConfigurationError
from exporter.simulator import Fault, Simulator, SimulatorServer
from exporter.simulator.documents import EVENTS_VERSIONS, INSTANCE_VERSIONS, instance_document
from tests.simulator.support import NEWEST, Client, HandClock, plan, scenario, served, served_each

HEADER = {"Metadata": "true"}
INSTANCE = "/metadata/instance"
VERSION = "2021-12-13"


@pytest.mark.parametrize("path", ["/metadata/scheduledevents", INSTANCE])
@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Metadata": "false"}},
        {"headers": HEADER | {"X-Forwarded-For": "10.0.0.1"}},
        {"params": {}},
        {"params": {"api-version": "2020-07-02"}},
    ],
)
def test_a_bad_request_is_refused(client: Client, path: str, options: dict[str, Any]) -> None:
    """Without the header, through a proxy, or without a version: 400, with the reason as JSON.

    For a version of Scheduled Events that is not available the status is 404, as clients expect it.
    """
    options = {"params": {"api-version": VERSION if path == INSTANCE else NEWEST}} | options
    answer = client.ask(path, **options)
    unknown = path != INSTANCE and options["params"].get("api-version") == "2020-07-02"
    assert answer.status_code == (404 if unknown else 400)
    assert answer.json()["error"].startswith("Bad request")
    newest = INSTANCE_VERSIONS if path == INSTANCE else EVENTS_VERSIONS
    assert answer.json().get("newest-versions", [*newest[:-4:-1]]) == [*newest[:-4:-1]]


def test_other_paths_and_methods_are_refused(client: Client) -> None:
    """The status is 404 or 405, the latter with the allowed methods."""
    for path in ("/metadata", "/metadata/scheduledevents/more", "/api/v1/nothing"):
        assert client.ask(path).status_code == 404
    refused = client.ask(method="PUT")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
    assert client.ask(INSTANCE, "POST", params={"api-version": VERSION}).status_code == 405
    refused = client.ask("/api/v1/state", "POST", headers={"content-type": "application/json"})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert client.ask("/", "HEAD").status_code == 200


def test_an_approval_starts_the_event(client: Client) -> None:
    """One POST can contain several ids; repeated approvals and unknown GUIDs return 200 as well."""
    ids = [event["EventId"] for event in client.ask().json()["Events"]]
    body = {"StartRequests": [{"EventId": one} for one in ids[:2]]}
    assert [client.ask(method="POST", json=body).status_code for _ in range(2)] == [200, 200]
    unknown = {"StartRequests": [{"EventId": str(uuid.uuid4())}]}
    assert client.ask(method="POST", json=unknown).status_code == 200
    document = client.ask().json()
    statuses = [event["EventStatus"] for event in document["Events"]]
    assert statuses == ["Started"] * 2 + ["Scheduled"] * 4
    assert document["DocumentIncarnation"] == 2


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b'{"StartRequests": []}',
        b'{"StartRequests": [{"EventId": 7}]}',
        b'{"StartRequests": [{"EventId": "mine"}]}',
        b"[" * 10_000,
    ],
)
def test_a_malformed_approval_is_refused(client: Client, body: bytes) -> None:
    """The status is 400, and no event starts."""
    assert client.ask(method="POST", data=body).status_code == 400
    assert client.ask().json()["DocumentIncarnation"] == 1


def test_the_first_answer_takes_its_time() -> None:
    """The request is held until the delay has passed."""
    with served(Simulator(first_call_delay=0.3)) as client:
        began = time.monotonic()
        assert client.ask().status_code == 200
        assert time.monotonic() - began >= 0.3


def test_a_fault_can_be_counted_and_restricted(simulator: Simulator, client: Client) -> None:
    """It applies only to its endpoint and method, and only the given number of times."""
    simulator.set_fault(Fault("error", status=599, count=2, endpoint="scheduledevents", method="GET"))
    assert client.ask(method="POST", data=b"").status_code == 400
    assert client.ask(INSTANCE, params={"api-version": VERSION}).status_code == 200
    assert [client.ask().status_code for _ in range(3)] == [599, 599, 200]


def test_a_drip_comes_byte_by_byte(simulator: Simulator, client: Client) -> None:
    """The body is complete in the end."""
    simulator.set_document(b"0123456789")
    simulator.set_fault(Fault("drip", seconds=0.02))
    began = time.monotonic()
    assert client.ask().content == b"0123456789"
    assert time.monotonic() - began >= 0.18


def test_each_vm_has_its_name_and_all_see_the_same_events() -> None:
    """Each port has its own VM, and all list the same events, until the end."""
    simulator = Simulator([scenario(plan())], vm_name="vm_0", instances=3, clock=HandClock())
    name = f"{INSTANCE}/compute/name"
    asked = {"api-version": "2021-02-01", "format": "text"}
    with served_each(simulator) as clients:
        assert {vm: client.ask(name, params=asked).text for vm, client in clients.items()} == {
            f"vm_{n}": f"vm_{n}" for n in range(3)
        }
        assert len({client.ask().content for client in clients.values()}) == 1
    with pytest.raises(requests.ConnectionError):
        clients["vm_2"].ask()


def test_each_vm_has_its_own_limit() -> None:
    """What one VM asks too much, of either path, takes nothing from another."""
    simulator = Simulator(vm_name="vm_0", instances=2, clock=HandClock(), requests_per_second=1)
    with served_each(simulator) as clients:
        first, second = clients.values()
        assert first.ask(INSTANCE, params={"api-version": VERSION}).status_code == 200
        assert [client.ask().status_code for client in (first, second)] == [429, 200]


def test_ports_that_do_not_exist_are_refused() -> None:
    """Ports end at 65535."""
    with pytest.raises(ConfigurationError):
        SimulatorServer(Simulator(instances=2), "127.0.0.1:65535")


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
    compute = client.ask(INSTANCE, params={"api-version": VERSION}).json()["compute"]
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
        ("compute/name/", "vm_0"),
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
