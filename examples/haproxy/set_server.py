"""A hook: set HAProxy's server to `ready` while the exporter reports this VM in service, else to `drain`.

set_server.py http://127.0.0.1:9843 HOST:PORT BACKEND/SERVER, where HOST:PORT is HAProxy's stats socket. The
EVENT_ variables are ignored, so the number and the order of events do not matter.
"""

import socket
import sys
import time
import urllib.error
import urllib.request

exporter, stats, server = sys.argv[1:]
host, _, port = stats.rpartition(":")
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wanted() -> str:
    """Return the state that the exporter asks for."""
    try:
        with direct.open(f"{exporter}/-/in-service", timeout=5):
            return "ready"
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return "drain"


while True:  # until the hook's timeout
    try:
        state = wanted()
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(f"set server {server} state {state}\n".encode())
            if refusal := connection.makefile().read().strip():
                sys.exit(f"HAProxy says: {refusal}")
        if wanted() == state:
            break
    except OSError as error:
        print(f"{error}; trying again", file=sys.stderr, flush=True)
        time.sleep(2)
