import msgspec
import pytest

from exporter.simulator import Fault, Simulator
from tests.simulator.support import Client, HandClock, gist, make, plan, scenario

JSON = {"content-type": "application/json"}


@pytest.fixture
def simulator() -> Simulator:
    playlist = [scenario(plan(), plan(type="Reboot", after=50)), scenario(name="later")]
    return make(*playlist, clock=HandClock())


def test_the_state_tells_all(client: Client) -> None:
    """What is listed, what is to come, what is next, and what clients have done."""
    state = client.ask("/api/v1/state").json()
    assert (state["vm_name"], state["speed"], state["document_incarnation"]) == ("vm_0", 1.0, 1)
    event = state["events"][0]
    assert (event["type"], event["status"], event["resources"]) == ("Freeze", "Scheduled", ["vm_0"])
    times = ["2026-03-04T22:00:00.400000Z", "2026-03-04T22:01:40.400000Z", "2026-03-04T22:02:30.400000Z"]
    assert [event[what] for what in ("appears", "starts", "ends")] == times
    assert [one["status"] for one in state["coming"]] == ["Coming"]
    assert state["next"] == {"at": "2026-03-04T22:10:00.400000Z", "scenario": "later", "title": "later"}
    assert (state["polls"], state["last_poll"], state["fault"], state["approvals"]) == (0, None, None, [])
    assert state["service"] == "on"
    client.ask()
    state = client.ask("/api/v1/state").json()
    assert (state["polls"], state["last_poll"]) == (1, state["now"])


def test_a_scenario_is_started_by_name(simulator: Simulator, client: Client) -> None:
    """The list contains bundled and custom ones; the response has the ids."""
    names = [one["name"] for one in client.ask("/api/v1/scenarios").json()]
    assert {"live-migration", "made-up"} <= set(names)
    answer = client.ask("/api/v1/scenarios/hardware-failure/start", "POST", headers=JSON)
    assert len(answer.json()["ids"]) == 1
    assert gist(simulator) == (2, [("Freeze", "Scheduled"), ("Reboot", "Started")])
    assert client.ask("/api/v1/scenarios/none/start", "POST", headers=JSON).status_code == 404
    assert client.ask("/api/v1/scenarios/x.yaml/start", "POST", headers=JSON).status_code == 404


def test_events_are_approved_and_cancelled(simulator: Simulator, client: Client) -> None:
    """Events are selected by id, or all at once."""
    event_id = client.ask("/api/v1/state").json()["events"][0]["id"]
    assert client.ask("/api/v1/approve", "POST", json={"ids": [event_id]}).status_code == 200
    assert gist(simulator) == (2, [("Freeze", "Started")])
    assert client.ask(f"/api/v1/events/{event_id.lower()}", "DELETE").status_code == 200
    assert gist(simulator) == (3, [])
    assert client.ask(f"/api/v1/events/{event_id}", "DELETE").status_code == 404
    (coming,) = client.ask("/api/v1/state").json()["coming"]
    statuses = [client.ask(f"/api/v1/events/{coming['id']}", "DELETE").status_code for _ in range(2)]
    assert statuses == [200, 404]
    simulator.start_scenario("live-migration")
    assert client.ask("/api/v1/events", "DELETE").status_code == 200
    state = client.ask("/api/v1/state").json()
    assert (state["events"], state["coming"]) == ([], [])


def test_everything_can_be_stopped(simulator: Simulator, client: Client) -> None:
    """No event is left, none comes, the playlist ends, and requests meet no fault or other document."""
    simulator.set_document(b"{}")
    assert client.ask().content == b"{}"
    client.ask("/api/v1/scenarios/live-migration/start", "POST", headers=JSON)
    client.ask("/api/v1/faults", "PUT", json={"mode": "drop"})
    assert client.ask("/api/v1/stop", "POST", headers={}).status_code == 415
    assert client.ask("/api/v1/stop", "POST", headers=JSON).status_code == 200
    state = client.ask("/api/v1/state").json()
    assert (state["event_count"], state["coming"], state["next"], state["fault"]) == (0, [], None, None)
    assert client.ask().json()["Events"] == []


def test_the_service_is_switched_off(client: Client) -> None:
    """The next request switches it on, with the requested time without events, or the previous one."""
    states = [client.ask("/api/v1/state").json()["service"]]
    for body in ({"empty_seconds": 60}, {}, {"empty_seconds": 0}):
        answer = client.ask("/api/v1/switch-off", "POST", json=body)
        assert (answer.status_code, answer.json()) == (200, {})
        states.append(client.ask("/api/v1/state").json()["service"])
        listed = client.ask().json()["Events"]
        states.append(client.ask("/api/v1/state").json()["service"])
        assert bool(listed) == (body == {"empty_seconds": 0})
    assert client.ask("/api/v1/switch-off", "POST", headers=JSON).status_code == 200
    assert states == ["on", "off", "empty", "off", "empty", "off", "on"]


def test_faults_are_set_and_removed(client: Client) -> None:
    """PUT sets a fault, which the state shows until it is used up, or until DELETE removes it."""
    answer = client.ask(
        "/api/v1/faults", "PUT", json={"mode": "error", "status": 300, "seconds": 0, "count": 1}
    )
    assert answer.json()["status"] == client.ask("/api/v1/state").json()["fault"]["status"] == 300
    assert client.ask().status_code == 300
    assert client.ask("/api/v1/state").json()["fault"] is None
    answer = client.ask("/api/v1/faults", "PUT", json={"mode": "throttle"})
    assert answer.json() == msgspec.to_builtins(Fault("throttle"))
    assert client.ask("/metadata/instance", params={"api-version": "2021-12-13"}).status_code == 429
    assert client.ask("/api/v1/faults", "DELETE").json() is None
    assert client.ask().status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "faults", {"mode": "explode"}),
        ("PUT", "faults", {"mode": "error", "status": 299}),
        ("PUT", "faults", {"mode": "error", "status": 304}),
        ("PUT", "faults", {"mode": "error", "retry_after": 3601}),
        ("PUT", "faults", {"mode": "delay", "seconds": 3601}),
        ("PUT", "faults", {"mode": "delay", "count": 0}),
        ("PUT", "faults", {"mode": "delay", "second": 1}),
        ("PUT", "faults", []),
        ("POST", "switch-off", {"empty_seconds": -1}),
        ("POST", "switch-off", {"empty_seconds": 86_401}),
        ("POST", "switch-off", {"seconds": 5}),
    ],
)
def test_what_is_impossible_is_refused(client: Client, method: str, path: str, body: object) -> None:
    """The status is 400, with the reason; no fault is set, and the service stays on."""
    client.ask()
    answer = client.ask(f"/api/v1/{path}", method, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    state = client.ask("/api/v1/state").json()
    assert (state["fault"], state["service"]) == (None, "on")


def test_another_sites_page_can_do_nothing(client: Client) -> None:
    """Cross-site requests that browsers send without a preflight are refused."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.ask("/api/v1/scenarios/live-migration/start", "POST", headers={"content-type": kind})
        assert answer.status_code == 415
    assert client.ask("/api/v1/switch-off", "POST", headers={}, data=b"{}").status_code == 415
    by_header = client.ask("/api/v1/scenarios/made-up/start", "POST", headers={"X-Requested-With": "curl"})
    assert by_header.status_code == 200
    asked_first = client.ask("/api/v1/events", "OPTIONS", headers={"Origin": "http://elsewhere.example"})
    assert asked_first.status_code == 405
    assert "access-control-allow-origin" not in asked_first.headers
