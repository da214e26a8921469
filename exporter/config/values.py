"""Values with a form of their own, as flags and configuration files write them.

Each has a ``parse`` whose ValueError says what is wrong and how to write it right.
"""

import re
from datetime import date
from urllib.parse import urlsplit

from exporter.errors import quoted
from exporter.timefmt import Duration

IMDS_ADDRESS = "http://169.254.169.254"
DISCOVER = "discover"


class Endpoint(str):
    """Where IMDS answers: a URL without path, or ``discover``."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Endpoint":
        """Read it from a flag or a file.

        Raises:
            ValueError: it is neither.
        """
        remedy = f"write a URL without path, like {IMDS_ADDRESS}, or {DISCOVER}"
        if text == DISCOVER:
            return cls(DISCOVER)
        try:
            url = urlsplit(str(text))
            usable = (
                url.scheme in ("http", "https")
                and url.hostname
                and url.port != 0
                and not re.search(r"\s", str(text))
            )
        except ValueError:
            usable = False
        if not usable or not isinstance(text, str):
            raise ValueError(f"is not a valid URL; {remedy}")
        if url.path.strip("/") or set("?#@") & set(text):
            raise ValueError(f"has more than scheme, host and port; {remedy}")
        return cls(text.rstrip("/"))


class ExternalUrl(str):
    """Where people reach the exporter's page: a URL, with a path where a proxy adds one."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "ExternalUrl":
        """Read it from a file; "" is none.

        Raises:
            ValueError: it is not a URL of a page.
        """
        remedy = "write it like https://vm-1.example.com:9843/"
        try:
            url = urlsplit(str(text))
            usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:
            usable = False
        if text == "":
            return cls("")
        if not usable or not re.fullmatch(r"[!-~]+", str(text)) or set('<>"`') & set(str(text)):
            raise ValueError(f"{quoted(text)} is not a valid URL; {remedy}")
        if set("?#@") & set(str(text)):
            raise ValueError(f"{quoted(text)} has more than scheme, host, port and path; {remedy}")
        return cls(text)


class PollInterval(Duration):
    """Time between two polls: IMDS throttles at 5 requests a second and goes to sleep after 24 hours."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "PollInterval":
        """Read it from a flag or a file.

        Raises:
            ValueError: it is not a valid duration, or not from 200ms to 1h.
        """
        seconds = Duration.parse(text)
        if not 0.2 <= seconds <= 3600:
            raise ValueError(f"{text} is out of range; Azure asks for 1s, and 200ms to 1h is possible")
        return cls(seconds)


class Positive(Duration):
    """A duration of more than nothing."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Positive":
        """Read it from a file.

        Raises:
            ValueError: it is not a valid duration, or 0.
        """
        seconds = Duration.parse(text)
        if seconds <= 0:
            raise ValueError(f"{text} is too short; write more than 0s")
        return cls(seconds)


class ApiVersion(str):
    """A version of the Scheduled Events API."""

    __slots__ = ()
    KNOWN = ("2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01")

    @classmethod
    def parse(cls, text: object) -> "ApiVersion":
        """Read it from a file.

        Raises:
            ValueError: it has not the form of a version; IMDS refuses "latest" too.
        """
        try:
            usable = re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", str(text)) and date.fromisoformat(str(text))
        except ValueError:
            usable = None
        if not usable:
            raise ValueError(f"{quoted(text)} is not a known version; known are {', '.join(cls.KNOWN)}")
        return cls(text)
