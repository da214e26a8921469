"""What a stop leaves behind."""

import contextlib
import gc
import socket
import threading
import warnings

from tests.serving.support import serving


def test_a_stop_leaves_no_connection_open() -> None:
    """However many connections come in while the server stops, each of them is closed."""
    over = threading.Event()

    def knock(port: int) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.1):
                pass

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(20):
            over.clear()
            with serving() as server:
                port = int(server.url.rpartition(":")[2])
                callers = [threading.Thread(target=knock, args=(port,)) for _ in range(4)]
                for caller in callers:
                    caller.start()
            over.set()
            for caller in callers:
                caller.join()
        gc.collect()
