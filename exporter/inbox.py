"""The inbox of the watch: reports of workers, recorded by the poller's thread without waiting for IMDS."""

import queue

from exporter.model.jobs import Attempt, Finding
from exporter.work import Loop

Report = Finding | Attempt


class Inbox:
    """Reports for the watch; any thread may put, the poller takes."""

    def __init__(self) -> None:
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._poller: Loop | None = None

    def connect(self, poller: Loop) -> None:
        """Set the loop that takes the reports."""
        self._poller = poller

    def put(self, *reports: Report) -> None:
        """Queue reports, and wake the poller; without any, it decides about approvals again."""
        for report in reports:
            self._reports.put(report)
        if self._poller is not None:
            self._poller.wake()

    def take(self) -> list[Report]:
        """Return the reports queued so far, oldest first."""
        return [self._reports.get() for _ in range(self._reports.qsize())]
