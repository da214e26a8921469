"""The soak's hook: logs its start, sleeps for some seconds, logs its end; fails on request."""

import json
import os
import socket
import sys
import time


def main(name: str, port: str, seconds: str) -> int:
    """Do so, and return the exit status."""
    facts = {key: value for key, value in os.environ.items() if key.startswith("EVENT_")}
    status = int("fail" in facts["EVENT_DESCRIPTION"])
    given = json.load(sys.stdin)
    word = {
        "hook": name,
        "life": int(os.environ["SOAK_LIFE"]),
        "id": facts["EVENT_ID"].lower(),
        "transition": facts["EVENT_TRANSITION"],
        "at": given["at"],
        "attempt": int(facts["EVENT_ATTEMPT"]),
        "agrees": given["id"] == facts["EVENT_ID"],
    }
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall(json.dumps(word).encode() + b"\n")
        time.sleep(float(seconds))
        connection.sendall(b"%d\n" % status)
        connection.recv(1)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
