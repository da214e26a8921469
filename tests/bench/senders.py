"""The sender process in memory: targets that keep their messages, and give the answers that a test sets."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from exporter.model.messages import Delivery, Rendered
from exporter.outputs.notifications.child import Child
from exporter.outputs.notifications.fitting import Room
from exporter.outputs.notifications.protocol import Checked, CheckTarget, Request, Send, request_of
from exporter.outputs.notifications.sender import SenderProcess

OK = Delivery(delivered=True)


def characters(limit: int | None) -> Room | None:
    """Return the room of a service that takes so many characters of title and body; None takes all."""
    return None if limit is None else Room(lambda title, body, _: len(title) + len(body) - limit)


class MemoryTarget:
    """A target that keeps its messages; ``answer`` decides about each."""

    def __init__(self) -> None:
        self.body_limit: int | None = None
        self.incidents = False
        # Why Apprise does not accept the address.
        self.refused = ""
        self.answer: Callable[[Rendered], Delivery] = lambda _: OK
        self.requests: list[Send] = []
        self.tried: list[Rendered] = []
        self.sent: list[Rendered] = []

    @property
    def titles(self) -> list[str]:
        """The titles of what arrived."""
        return [rendered.title for rendered in self.sent]


class MemorySender(SenderProcess):
    """Does in this thread what the process does; with ``is_real`` it sends to the addresses."""

    def __init__(self, *, is_real: bool = False) -> None:
        super().__init__({})
        self.targets: dict[str, MemoryTarget] = {}
        self._child = Child(lambda _: None)
        # What a test does while the next message is being sent; it returns the result.
        self.held: Callable[[], Delivery] | None = None
        self._is_real = is_real

    def target(self, name: str) -> MemoryTarget:
        """Return a target."""
        return self.targets.setdefault(name, MemoryTarget())

    def ask(
        self, request: Request, *, failed: bool = False, note: Callable[[str], None] = lambda _: None
    ) -> Delivery | Checked:
        """Answer what would go through the socket."""
        del failed, note
        if self.held is not None and isinstance(request, Send):
            held, self.held = self.held, None
            return held()
        return self._answer(request_of(msgspec.json.encode(request)))

    def prepare(self) -> None:
        """Do nothing, as `close` and `stop`: the next program uses it again."""

    close = stop = prepare

    def _answer(self, request: Request) -> Delivery | Checked:
        if self._is_real or not isinstance(request, Send | CheckTarget):
            return self._child.result(request)
        target = self.target(request.address.target)
        if isinstance(request, CheckTarget):
            return Checked(target.refused, incidents=target.incidents)
        rendered, remarks = self._child.renderer.render(request, characters(target.body_limit))
        target.requests.append(request)
        target.tried.append(rendered)
        unneeded = rendered.only_closes and not target.incidents
        delivery = Delivery(delivered=True, skipped=True) if unneeded else target.answer(rendered)
        if delivery.delivered and not delivery.skipped:
            target.sent.append(rendered)
        return replace(delivery, remarks=remarks)
