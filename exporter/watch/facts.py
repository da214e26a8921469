"""The facts about this VM, which IMDS is asked for until they and its name are known."""

from exporter.clock import Clock
from exporter.errors import ImdsError
from exporter.imds.client import ImdsClient
from exporter.model.vm import VirtualMachine

_NAME_RETRY_SECONDS = 10.0
# If the name is configured, the other facts are only for labels and messages.
_FACTS_RETRY_SECONDS = 300.0
# If the request for the facts is slow, most of the time must remain for polling.
_PATIENCE = 9.0


class Facts:
    """What IMDS has told about this VM; used by one thread. ``tags`` are those that are shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._vm: VirtualMachine | None = None
        self.error: ImdsError | None = None
        # That of the answer with the facts, "" before it.
        self.api_version = ""
        self.tags: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of this VM, "" while it is unknown."""
        return self._vm.name if self._vm else ""

    @property
    def shown(self) -> VirtualMachine | None:
        """The facts, with the tags that are shown."""
        return self._vm.with_tags(self.tags) if self._vm else None

    def renew(self) -> None:
        """Ask IMDS, which may be another one, with the next document; until then keep what is known."""
        # Whether they are those of the IMDS in use.
        self.is_current = False
        self._due = self._clock.monotonic()

    def learn(self, imds: ImdsClient, *, named: bool) -> bool:
        """Ask IMDS if that is due, and return whether it was; ``error`` is why the last request failed."""
        asked = self._clock.monotonic()
        if asked < self._due:
            return False
        try:
            self._vm, self.error = imds.instance(), None
            self.is_current, self.api_version = True, imds.instance_api_version
        except ImdsError as error:
            self.error = error
        answered = self._clock.monotonic()
        pause = _FACTS_RETRY_SECONDS if named else _NAME_RETRY_SECONDS
        if self.error is not None:
            pause = max(pause, self.error.retry_after)
        self._due = answered + max(pause, _PATIENCE * (answered - asked))
        return True
