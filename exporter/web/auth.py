"""Who may ask, and how often: basic authentication with bcrypt, and the rate limit."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus

from exporter.clock import Clock
from exporter.web.http import Request, Response, failure, text
from exporter.web.settings import RateLimit, WebSettings

# bcrypt sees no more of a password; Go's cuts it silently, Python's refuses it.
_BCRYPT_BYTES = 72
_REMEMBERED = 100
_CHALLENGE = (("www-authenticate", 'Basic realm="azure-scheduled-events-exporter", charset="UTF-8"'),)


class Guard:
    """Decides whether a request is let in, by the settings of the moment."""

    def __init__(self, clock: Clock) -> None:
        self._bucket = _Bucket(clock)
        self._passwords = Passwords()

    async def refusal(self, settings: WebSettings, request: Request) -> Response | None:
        """Return the answer that turns a request away, or None to let it in."""
        if settings.rate_limit and not self._bucket.take(settings.rate_limit):
            return failure(HTTPStatus.TOO_MANY_REQUESTS)
        if settings.users:
            given = credentials(request.header(b"authorization"))
            if given is None or not await self._passwords.right(settings.users, *given):
                return text("401 Unauthorized", 401, _CHALLENGE)
        return None


def credentials(header: str) -> tuple[str, bytes] | None:
    """Read name and password from an ``Authorization`` header; None where it holds none (RFC 7617)."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


class Passwords:
    """Checks passwords against bcrypt hashes, off the event loop, one at a time.

    At cost 10 a check takes some 60 ms of CPU. Right ones are remembered under a keyed hash, whose key is
    drawn anew in every process, so that a scrape pays once; wrong ones pay each time.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def right(self, users: Mapping[str, bytes], name: str, password: bytes) -> bool:
        """Return whether the password is the user's; an unknown name costs the same time as a known one."""
        known = name in users
        hashed = users[name] if known else next(iter(users.values()))
        ticket = self._ticket(name, hashed, password)
        if ticket in self._right:
            self._right.move_to_end(ticket)
            return True
        async with self._one_at_a_time:
            fits = await asyncio.to_thread(_fits, password, hashed)
        if not (fits and known):
            return False
        self._right[ticket] = None
        while len(self._right) > _REMEMBERED:
            self._right.popitem(last=False)
        return True

    def _ticket(self, name: str, hashed: bytes, password: bytes) -> bytes:
        # The lengths keep the parts apart; the hash in it makes a changed password count at once.
        parts = (name.encode(), hashed, password)
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, message, hashlib.sha256)


def _fits(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:  # older versions take no NUL
        return False


class _Bucket:
    """A token bucket, filled when it is asked; full at first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit: RateLimit | None = None
        self._tokens = 0.0
        self._at = 0.0

    def take(self, limit: RateLimit) -> bool:
        """Take one token, if there is one."""
        now = self._clock.monotonic()
        if limit != self._limit:
            self._limit, self._tokens, self._at = limit, float(limit.burst), now
        self._tokens = min(limit.burst, self._tokens + (now - self._at) / limit.interval)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
