"""What IMDS knows of this VM, asked for once, by a thread that nobody waits for."""

import logging
import threading
from collections.abc import Callable

from exporter.errors import ImdsError
from exporter.imds import InstanceFacts

log = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0


class FactsOnce:
    """The facts about this VM; empty until IMDS has told them."""

    def __init__(self, ask: Callable[[], InstanceFacts]) -> None:
        self.known = InstanceFacts()
        self._ask = ask
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="instance facts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.known = self._ask()
            except ImdsError as error:
                log.debug("no facts about this VM", extra={"error": str(error)})
                self._stopping.wait(_RETRY_SECONDS)
            else:
                return
