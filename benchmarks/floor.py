"""The least that an exporter in Python can cost: http.client polls, prometheus_client serves.

Run as ``python -m benchmarks.floor run --imds.endpoint URL --web.listen-address 127.0.0.1:PORT``. It neither
reads nor remembers what it gets.
"""

import argparse
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

from prometheus_client import Counter, Gauge, start_http_server

PATH = "/metadata/scheduledevents?api-version=2020-07-01"


def main() -> None:
    """Serve, and poll once a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--imds.endpoint", dest="imds")
    parser.add_argument("--web.listen-address", dest="address")
    parser.add_argument("--series", type=int, default=0, help="how many series of events to serve")
    flags, _ = parser.parse_known_args()
    up = Gauge("floor_up", "1 if the last poll succeeded.")
    polls = Counter("floor_polls", "Polls by outcome.", ["outcome"]).labels("success")
    events = Gauge("floor_event", "A fact about an event.", ["event_id", "event_type"])
    for number in range(flags.series):
        events.labels(f"{number:032x}", "Freeze").set(number)
    host, _, port = flags.address.partition(":")
    start_http_server(int(port), host)
    connection = HTTPConnection(urlsplit(flags.imds).netloc, timeout=10)
    while True:
        started = time.monotonic()
        connection.request("GET", PATH, headers={"Metadata": "true"})
        with connection.getresponse() as response:
            response.read()
            up.set(response.status == 200)
        polls.inc()
        time.sleep(max(0.0, 1.0 - (time.monotonic() - started)))


if __name__ == "__main__":
    main()
