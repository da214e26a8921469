"""Faults: what the simulated service does wrong, on demand."""

from typing import Literal

import msgspec

from exporter.errors import ConfigurationError

Mode = Literal["error", "throttle", "delay", "garbage", "drop", "drip"]
Endpoint = Literal["scheduledevents", "instance"]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to requests for ``/metadata``, to the next ``count`` of them or until it is taken back.

    ``error`` answers with ``status``, ``throttle`` with 429, ``garbage`` with 200 and no JSON; ``delay``
    waits ``seconds`` before a right answer, ``drip`` sends it a byte every ``seconds``; ``drop`` closes the
    connection without any. ``endpoint`` and ``method`` restrict it.
    """

    mode: Mode
    status: int = 500
    seconds: float = 1.0
    count: int | None = None
    endpoint: Endpoint | None = None
    method: Literal["GET", "POST"] | None = None

    @classmethod
    def parse(cls, body: bytes) -> "Fault | None":
        """Read JSON; ``{"mode": null}`` is None.

        Raises:
            ConfigurationError: it is not a fault.
        """
        try:
            if msgspec.json.decode(body, type=dict[str, object]).get("mode", "") is None:
                return None
            fault = msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigurationError(f"no fault: {error}") from error
        fault.check()
        return fault

    def check(self) -> None:
        """Look at the numbers.

        Raises:
            ConfigurationError: one is out of its range.
        """
        if not 300 <= self.status <= 599 or self.status == 304:
            raise ConfigurationError("status must be from 300 to 599, and not 304, which has no body")
        if not 0 <= self.seconds <= 3600:
            raise ConfigurationError("seconds must be from 0 to 3600")
        if self.count is not None and self.count < 1:
            raise ConfigurationError("count must be 1 or more, or null")


class Faults:
    """The fault that holds now, if any."""

    def __init__(self) -> None:
        self.current: Fault | None = None

    def take(self, endpoint: str, method: str) -> Fault | None:
        """Return the fault that a request meets, and count it."""
        fault = self.current
        if fault is None or fault.endpoint not in {None, endpoint} or fault.method not in {None, method}:
            return None
        if fault.count is not None:
            self.current = msgspec.structs.replace(fault, count=fault.count - 1) if fault.count > 1 else None
        return fault
