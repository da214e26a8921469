"""Tests of what starts the programs of the other tests."""

import socket

import pytest

from tests.end_to_end.program import free_port


def test_a_free_port_is_kept_free() -> None:
    """It refuses connections, and is not assigned to others until its server binds it."""
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        pass
