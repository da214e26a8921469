"""The service's own paths over HTTP: refusals, versions, approvals, limits and faults."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from exporter.simulator import Fault, Simulator
from exporter.simulator.documents import EVENTS_VERSIONS
from tests.simulator.support import NEWEST, Client, HandClock, change, plan, scenario, served

HEADER = {"Metadata": "true"}
INSTANCE = "/metadata/instance"


@pytest.fixture
def clock() -> HandClock:
    """Make a clock moved by hand."""
    return HandClock()


@pytest.fixture
def simulator(clock: HandClock) -> Simulator:
    """Make a simulator with one event of every type, and without a limit on requests."""
    kinds = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
    playlist = [scenario(*(plan(type=kind) for kind in kinds))]
    return Simulator(playlist, vm_name="vm_0", clock=clock, requests_per_second=0)


@pytest.fixture
def client(simulator: Simulator) -> Iterator[Client]:
    """Serve it, and return a client."""
    with served(simulator) as found:
        yield found


@pytest.mark.parametrize("path", ["/metadata/scheduledevents", INSTANCE])
@pytest.mark.parametrize(
    "options",
    [
        {"headers": {}},
        {"headers": {"Metadata": "false"}},
        {"headers": HEADER | {"X-Forwarded-For": "10.0.0.1"}},
        {"params": {}},
        {"params": {"api-version": "latest"}},
        {"params": {"api-version": "{latest}"}},
        {"params": {"api-version": "2020-07-02"}},
    ],
)
def test_a_bad_request_is_refused(client: Client, path: str, options: dict[str, Any]) -> None:
    """Without the header, through a proxy, or without a known version: 400, and JSON that says why."""
    options = {"params": {"api-version": "2021-12-13" if path == INSTANCE else NEWEST}} | options
    answer = client.ask(path, **options)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Bad request")


def test_other_paths_and_methods_are_refused(client: Client) -> None:
    """404 and 405, the latter with the methods that there are."""
    assert client.ask("/metadata").status_code == 404
    assert client.ask("/metadata/scheduledevents/more").status_code == 404
    refused = client.ask(method="PUT")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
    assert client.ask(INSTANCE, "POST", params={"api-version": "2021-12-13"}).status_code == 405


def test_each_version_has_its_fields_and_types(client: Client) -> None:
    """Every version adds what Azure's table says it added."""
    fields, kinds = {}, {}
    for version in EVENTS_VERSIONS:
        events = client.ask(params={"api-version": version}).json()["Events"]
        fields[version] = len(events[0])
        kinds[version] = len(events)
    assert list(fields.values()) == [6, 6, 6, 6, 7, 8, 9]
    assert list(kinds.values()) == [3, 3, 4, 5, 5, 5, 5]


def test_the_preview_writes_underscores_and_needs_no_header(client: Client) -> None:
    """Version 2017-03-01 is lenient, and names VMs in its own way."""
    answer = client.ask(headers={}, params={"api-version": "2017-03-01"})
    assert answer.json()["Events"][0]["Resources"] == ["_vm_0"]


def test_the_instance_document_names_the_vm(client: Client) -> None:
    """It holds the facts that a client may look for."""
    compute = client.ask(INSTANCE, params={"api-version": "2021-12-13"}).json()["compute"]
    assert (compute["name"], compute["vmScaleSetName"]) == ("vm_0", "vm")
    assert str(uuid.UUID(compute["vmId"])) == compute["vmId"]
    assert str(uuid.UUID(compute["subscriptionId"])) == compute["subscriptionId"]
    wanted = "resourceGroupName location zone platformFaultDomain platformUpdateDomain vmSize tags"
    assert set(wanted.split()) <= set(compute)


def test_an_approval_starts_the_event(client: Client) -> None:
    """One POST may hold several ids; approving again, or an unknown GUID, is answered 200 as well."""
    ids = [event["EventId"] for event in client.ask().json()["Events"]]
    body = {"StartRequests": [{"EventId": one} for one in ids[:2]]}
    assert [client.ask(method="POST", json=body).status_code for _ in range(2)] == [200, 200]
    unknown = {"StartRequests": [{"EventId": str(uuid.uuid4())}]}
    assert client.ask(method="POST", json=unknown).status_code == 200
    document = client.ask().json()
    assert [event["EventStatus"] for event in document["Events"]] == ["Started"] * 2 + ["Scheduled"] * 3
    assert document["DocumentIncarnation"] == 2


def test_only_the_newest_id_of_an_event_starts_it(clock: HandClock) -> None:
    """An older one is answered 200 as well."""
    planned = plan(renews_id=True, changes=(change(10),))
    with served(Simulator([scenario(planned)], clock=clock)) as client:
        ids = []
        for clock.passed in (0, 10):
            ids.append(client.ask().json()["Events"][0]["EventId"])
        statuses = []
        for event_id in ids:
            approval = {"StartRequests": [{"EventId": event_id}]}
            assert client.ask(method="POST", json=approval).status_code == 200
            statuses.append(client.ask().json()["Events"][0]["EventStatus"])
    assert statuses == ["Scheduled", "Started"]


def test_the_service_that_was_switched_off_has_no_events_at_first(clock: HandClock) -> None:
    """A request switches it on and is answered with an empty document; the events come later."""
    simulator = Simulator([scenario(plan(notice=900))], clock=clock, requests_per_second=0)
    with served(simulator) as client:
        before = client.ask().json()
        simulator.switch_off(300)
        seen = []
        for clock.passed in (10, 309, 310):
            seen.append(client.ask().json())
    assert seen == [{"DocumentIncarnation": 0, "Events": []}] * 2 + [before]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"StartRequests": []}',
        b'{"StartRequests": [{"EventId": 7}]}',
        b'{"StartRequests": [{"EventId": "mine"}]}',
        b"[" * 100_00,
    ],
)
def test_a_malformed_approval_is_refused(client: Client, body: bytes) -> None:
    """400, and nothing starts."""
    assert client.ask(method="POST", data=body).status_code == 400
    assert client.ask().json()["DocumentIncarnation"] == 1


def test_ids_of_a_document_set_by_hand_can_be_approved(simulator: Simulator, client: Client) -> None:
    """Even where they are no GUIDs; the approval is noted."""
    simulator.set_document({"DocumentIncarnation": 1, "Events": [{"EventId": "mine"}]})
    body = {"StartRequests": [{"EventId": "mine"}]}
    assert client.ask(method="POST", json=body).status_code == 200
    assert [one.event_id for one in simulator.approvals] == ["mine"]


def test_the_sixth_request_of_a_second_is_throttled(clock: HandClock) -> None:
    """Both paths count together; a second later all is well."""
    with served(Simulator(clock=clock)) as client:
        paths = [INSTANCE, "/metadata/scheduledevents"] * 3
        versions = ["2021-12-13", NEWEST] * 3
        answers = [
            client.ask(path, params={"api-version": version}).status_code
            for path, version in zip(paths, versions, strict=True)
        ]
        assert answers == [200] * 5 + [429]
        clock.passed = 1
        assert client.ask().status_code == 200


def test_the_first_answer_takes_its_time(clock: HandClock) -> None:
    """The request is held until the delay has passed."""
    simulator = Simulator(clock=clock, first_call_delay=100)
    with served(simulator) as client:
        assert simulator.first_call_wait() == 100
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(client.ask().status_code))
        waiting.start()
        waiting.join(0.2)
        held = not answers
        clock.passed = 100
        waiting.join(10)
        assert (held, answers) == (True, [200])


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Fault("error"), 500), (Fault("error", status=410), 410), (Fault("throttle"), 429)],
)
def test_a_fault_answers_with_its_status(
    simulator: Simulator, client: Client, fault: Fault, status: int
) -> None:
    """On both paths, until it is taken back."""
    simulator.set_fault(fault)
    found = [client.ask(path).status_code for path in ("/metadata/scheduledevents", INSTANCE) * 2]
    assert found == [status] * 4
    simulator.set_fault(None)
    assert client.ask().status_code == 200


def test_a_fault_can_be_counted_and_restricted(simulator: Simulator, client: Client) -> None:
    """It hits only its endpoint and method, and only so many times."""
    simulator.set_fault(Fault("error", count=2, endpoint="scheduledevents", method="GET"))
    assert client.ask(method="POST", data=b"").status_code == 400
    assert client.ask(INSTANCE, params={"api-version": "2021-12-13"}).status_code == 200
    assert [client.ask().status_code for _ in range(3)] == [500, 500, 200]


def test_garbage_is_no_json(simulator: Simulator, client: Client) -> None:
    """Status 200, and a body that cannot be read."""
    simulator.set_fault(Fault("garbage"))
    answer = client.ask()
    assert answer.status_code == 200
    with pytest.raises(ValueError, match=r"."):
        answer.json()


def test_a_dropped_connection_has_no_answer(simulator: Simulator, client: Client) -> None:
    """The client sees its connection cut, with and without a body on the way; the next request is well."""
    simulator.set_fault(Fault("drop", count=2))
    for method, body in (("GET", None), ("POST", b"{}")):
        with pytest.raises(requests.ConnectionError):
            client.ask(method=method, data=body)
    assert client.ask().status_code == 200


def test_a_delay_holds_the_answer_back(simulator: Simulator, client: Client) -> None:
    """It comes right, and late."""
    simulator.set_fault(Fault("delay", seconds=0.2))
    began = time.monotonic()
    assert client.ask().json()["DocumentIncarnation"] == 1
    assert time.monotonic() - began >= 0.2


def test_a_drip_comes_byte_by_byte(simulator: Simulator, client: Client) -> None:
    """The body is whole in the end."""
    simulator.set_document(b"0123456789")
    simulator.set_fault(Fault("drip", seconds=0.02))
    began = time.monotonic()
    assert client.ask().content == b"0123456789"
    assert time.monotonic() - began >= 0.18


def test_stopping_does_not_wait_for_faults(simulator: Simulator) -> None:
    """A request that is being dripped or delayed is cut, and no thread stays behind."""
    before = threading.active_count()
    simulator.set_fault(Fault("delay", seconds=3600, count=1))
    failed: list[Exception] = []

    def ask(client: Client) -> None:
        try:
            client.ask()
        except requests.ConnectionError as error:
            failed.append(error)

    with served(simulator) as client:
        waiting = threading.Thread(target=ask, args=(client,))
        waiting.start()
        while simulator.picture().fault is not None:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    waiting.join(5)
    assert len(failed) == 1
    assert threading.active_count() == before
