"""A hook: set HAProxy's server to `ready` while the exporter reports this VM in service, else to `drain`.

It asks the exporter and ignores the EVENT_ variables, so it does not matter how often or in which order it
runs, or how many events there are.
"""

import argparse
import socket
import sys
import time
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 2.0


class RefusedError(Exception):
    """HAProxy does not do it, whatever it is asked for again."""


def wanted(exporter: str) -> str:
    """Return the state that the exporter asks for; raise OSError where it does not answer."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{exporter}/-/in-service", timeout=TIMEOUT_SECONDS):
            return "ready"
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return "drain"


def set_state(socket_address: str, server: str, state: str) -> None:
    """Set the state; raise OSError if HAProxy does not answer, RefusedError if it refuses."""
    host, _, port = socket_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(f"set server {server} state {state}\n".encode())
        with connection.makefile(encoding="utf-8", errors="replace") as answer:
            said = answer.read().strip()
    if said:
        raise RefusedError(said)


def follow(exporter: str, socket_address: str, server: str) -> str:
    """Set the state until it is what the exporter still asks for afterwards; return it."""
    while True:
        state = wanted(exporter)
        set_state(socket_address, server, state)
        if wanted(exporter) == state:
            return state


def main() -> None:
    """Try until it succeeds; the hook's timeout is the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exporter", help="its URL, http://127.0.0.1:9843")
    parser.add_argument("socket", help="HAProxy's stats socket, HOST:PORT")
    parser.add_argument("server", help="BACKEND/SERVER")
    given = parser.parse_args()
    while True:
        try:
            state = follow(given.exporter, given.socket, given.server)
        except RefusedError as error:
            sys.exit(f"HAProxy says: {error}")
        except OSError as error:
            print(f"{error}; trying again", file=sys.stderr, flush=True)
            time.sleep(RETRY_SECONDS)
        else:
            print(f"{given.server} is to be {state}")
            return


if __name__ == "__main__":
    main()
