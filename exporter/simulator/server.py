"""The simulator as others use it: a simulation, its application, and a server for it."""

import contextlib
from typing import Self

from exporter.serving import AsgiApp, AsgiServer, listen
from exporter.simulator.routes import create_app
from exporter.simulator.simulation import Simulation


class Simulator(Simulation):
    """A simulation that can be asked over HTTP: `app` is its ASGI application."""

    @property
    def app(self) -> AsgiApp:
        """The service's paths, the control page and the API."""
        return create_app(self, self.vm_name)


class SimulatorServer:
    """A simulator, served; also a context manager that starts and stops it.

    Each VM of the simulator has a port: the given one and those after it, or any if it is 0.

    Raises:
        ConfigurationError: the address is malformed, or has too few ports after it.
        ListenError: it cannot be bound.
    """

    def __init__(self, simulator: Simulator, address: str = "127.0.0.1:0") -> None:
        self.simulator = simulator
        with contextlib.ExitStack() as undo:
            listeners = [
                undo.enter_context(listen(_nth(address, number))) for number in range(len(simulator.vms))
            ]
            undo.pop_all()
        self._servers = [
            AsgiServer(create_app(simulator, vm), listener)
            for vm, listener in zip(simulator.vms, listeners, strict=True)
        ]

    @property
    def url(self) -> str:
        """The endpoint to give to the client of the first VM: a URL without path."""
        return self._servers[0].url

    @property
    def urls(self) -> dict[str, str]:
        """The endpoints of all VMs, by the VM's name."""
        return {vm: server.url for vm, server in zip(self.simulator.vms, self._servers, strict=True)}

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers:
            server.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Stop, each server within ``timeout`` seconds."""
        for server in self._servers:
            server.stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _nth(address: str, number: int) -> str:
    host, _, port = address.rpartition(":")
    if number == 0 or not port.isdigit() or int(port) == 0:
        return address
    return f"{host}:{int(port) + number}"
