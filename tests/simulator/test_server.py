"""The service's own paths over HTTP: refusals, approvals, limits, faults, and many VMs."""

import threading
import time
import uuid
from typing import Any

import pytest
import requests

from exporter.errors import ConfigurationError
from exporter.simulator import Fault, Simulator, SimulatorServer
from exporter.simulator.documents import EVENTS_VERSIONS, INSTANCE_VERSIONS
from tests.simulator.support import NEWEST, Client, HandClock, plan, scenario, served, served_each

HEADER = {"Metadata": "true"}
INSTANCE = "/metadata/instance"


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
    """Without the header, through a proxy, or without a version: 400, with the reason as JSON.

    For a version of Scheduled Events that is not available the status is 404, as clients expect it.
    """
    options = {"params": {"api-version": "2021-12-13" if path == INSTANCE else NEWEST}} | options
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
    assert client.ask(INSTANCE, "POST", params={"api-version": "2021-12-13"}).status_code == 405
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
    """The status is 400, and no event starts."""
    assert client.ask(method="POST", data=body).status_code == 400
    assert client.ask().json()["DocumentIncarnation"] == 1


def test_the_first_answer_takes_its_time(clock: HandClock) -> None:
    """The request is held until the delay has passed."""
    simulator = Simulator(clock=clock, first_call_delay=1)
    with served(simulator) as client:
        assert simulator.first_call_wait() == 1
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(client.ask().status_code))
        waiting.start()
        waiting.join(0.2)
        held = not answers
        clock.passed = 1
        waiting.join(30)
        assert (held, answers) == (True, [200])


def test_a_fault_can_be_counted_and_restricted(simulator: Simulator, client: Client) -> None:
    """It applies only to its endpoint and method, and only the given number of times."""
    simulator.set_fault(Fault("error", status=599, count=2, endpoint="scheduledevents", method="GET"))
    assert client.ask(method="POST", data=b"").status_code == 400
    assert client.ask(INSTANCE, params={"api-version": "2021-12-13"}).status_code == 200
    assert [client.ask().status_code for _ in range(3)] == [599, 599, 200]


def test_a_refusal_of_the_guest_proxy_agent(simulator: Simulator, client: Client) -> None:
    """It is a 403 without a body, after which the connection is closed; the facts are refused, too."""
    simulator.set_fault(Fault("forbidden"))
    for path in ("/metadata/scheduledevents", INSTANCE):
        answer = client.ask(path, params={"api-version": "2020-07-01"})
        assert (answer.status_code, answer.content, answer.headers["connection"]) == (403, b"", "close")


@pytest.mark.parametrize(("mode", "status"), [("throttle", 429), ("error", 503)])
def test_a_refusal_may_ask_for_a_pause(simulator: Simulator, client: Client, mode: Any, status: int) -> None:
    """With retry_after there is a header Retry-After, without it there is none."""
    for seconds in (None, 7):
        simulator.set_fault(Fault(mode, status=503, retry_after=seconds))
        answer = client.ask()
        assert answer.status_code == status
        assert answer.headers.get("retry-after") == (None if seconds is None else "7")


def test_a_drip_comes_byte_by_byte(simulator: Simulator, client: Client) -> None:
    """The body is complete in the end."""
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
    waiting.join(30)
    assert len(failed) == 1
    assert threading.active_count() <= before


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
        assert first.ask(INSTANCE, params={"api-version": "2021-12-13"}).status_code == 200
        assert [client.ask().status_code for client in (first, second)] == [429, 200]


def test_ports_that_do_not_exist_are_refused() -> None:
    """Ports end at 65535."""
    with pytest.raises(ConfigurationError):
        SimulatorServer(Simulator(instances=2), "127.0.0.1:65535")
