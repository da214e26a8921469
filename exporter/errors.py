"""Every exception this program raises on purpose.

    ExporterError
    ├── ConfigurationError      a flag or a file is wrong: exit status 2
    ├── ImdsError               the Instance Metadata Service gave no usable answer
    │   └── InvalidDocumentError    it answered, but with something that is not a document
    ├── StateDirectoryInUseError    another exporter works in this state directory
    ├── ListenError             the address to serve on cannot be bound
    └── StoppingError           the exporter is stopping, and takes no more requests

Foreign exceptions are translated into these where they enter, ``from`` the original.
"""

from enum import StrEnum


class ExporterError(Exception):
    """The root: whoever catches this catches all that is expected to go wrong."""


class ConfigurationError(ExporterError):
    """A flag or a configuration file is wrong; the message names what, where, and the remedy."""


class PollOutcome(StrEnum):
    """How one request to IMDS ended: a metric label, a log field and an error's reason alike."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    CONNECTION_ERROR = "connection_error"
    THROTTLED = "throttled"
    HTTP_ERROR = "http_error"
    INVALID_DOCUMENT = "invalid_document"


class ImdsError(ExporterError):
    """IMDS gave no usable answer; ``reason`` is never ``SUCCESS``."""

    def __init__(self, reason: PollOutcome, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidDocumentError(ImdsError):
    """IMDS answered with something that is not a document of scheduled events."""

    def __init__(self, message: str) -> None:
        super().__init__(PollOutcome.INVALID_DOCUMENT, message)


class StateDirectoryInUseError(ExporterError):
    """Another exporter holds the state directory; two would send every message twice."""


class ListenError(ExporterError):
    """The address to serve on cannot be bound."""


class StoppingError(ExporterError):
    """The exporter is stopping, and takes no more requests."""

    def __init__(self) -> None:
        super().__init__("the exporter is stopping")
