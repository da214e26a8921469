"""The simulator as others use it: a simulation, its application, and a server for it."""

from typing import Self

from exporter.serving import AsgiApp, AsgiServer, listen
from exporter.simulator.routes import create_app
from exporter.simulator.simulation import Simulation


class Simulator(Simulation):
    """A simulation that can be asked over HTTP: `app` is its ASGI application."""

    @property
    def app(self) -> AsgiApp:
        """The service's paths, the control page and the API."""
        return create_app(self)


class SimulatorServer:
    """A simulator, served; also a context manager that starts and stops it.

    Raises:
        ConfigurationError: the address is malformed.
        ListenError: it cannot be bound.
    """

    def __init__(self, simulator: Simulator, address: str = "127.0.0.1:0") -> None:
        self.simulator = simulator
        self._server = AsgiServer(simulator.app, listen(address))

    @property
    def url(self) -> str:
        """The endpoint to give to a client: a URL without path."""
        return self._server.url

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Stop within ``timeout`` seconds."""
        self._server.stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
