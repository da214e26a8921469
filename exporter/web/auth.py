"""Basic authentication with bcrypt, and the rate limit."""

import base64
import hashlib
import hmac
import logging
import math
import secrets
import threading
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from exporter.clock import Clock
from exporter.metrics import PREFIX
from exporter.serving.http import Request, Response, text
from exporter.web.webfile import RateLimit, WebSettings

log = logging.getLogger(__name__)

_BCRYPT_BYTES = 72  # bcrypt uses no more of a password; Go's truncates it silently, Python's raises an error
# bcrypt's form of base64, and the position of the last character of the salt in a hash.
_ALPHABET = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_SALT_END = 28
_REMEMBERED = 100
_FOLD_SECONDS = 60.0
_MOST_CHECKS = 4  # the one in progress, and those that wait for it
_CLOSE = {"connection": "close"}  # refused clients must not occupy connections that others need
_CHALLENGE = {"www-authenticate": 'Basic realm="azure-scheduled-events-exporter", charset="UTF-8"'}
_UNAUTHORIZED = text("401 Unauthorized", 401, _CHALLENGE | _CLOSE)
_TOO_MANY = text("429 Too Many Requests", 429, {"retry-after": "1"} | _CLOSE)


class Guard:
    """Decides by the current settings whether a request is admitted."""

    def __init__(self, clock: Clock, registry: CollectorRegistry) -> None:
        self._passwords = Passwords()
        # Failed guesses must not use up the rate limit of clients with a correct password.
        self._known_bucket, self._bucket = _Bucket(clock), _Bucket(clock)
        self._lock = threading.Lock()
        self._clock = clock
        self._failures = Counter(
            "failed_logins",
            "Requests with a wrong user name or password.",
            namespace=PREFIX,
            registry=registry,
        )
        self._unlogged = 0
        self._log_at = -math.inf

    def refusal(self, settings: WebSettings, request: Request) -> Response | None:
        """Return the response that rejects a request, or None to admit it."""
        given = _credentials(request.header(b"authorization")) if settings.users else None
        is_remembered = given is not None and self._passwords.remembers(settings.users, *given)
        bucket = self._known_bucket if is_remembered else self._bucket
        with self._lock:
            if settings.rate_limit and not bucket.take(settings.rate_limit):
                return _TOO_MANY
        if is_remembered or not settings.users:
            return None
        if given is None:
            return _UNAUTHORIZED
        right = self._passwords.check(settings.users, *given)
        if right is None:
            return _TOO_MANY
        if right:
            return None
        self._count_failed(request.client)
        return _UNAUTHORIZED

    def _count_failed(self, client: str) -> None:
        """Count a failed login; log the first at once, then at most one line a minute."""
        self._failures.inc()
        with self._lock:
            self._unlogged += 1
            now = self._clock.monotonic()
            if now >= self._log_at:
                # Not the name: people type their password there.
                log.warning("failed logins", extra={"count": self._unlogged, "last_client": client})
                self._unlogged, self._log_at = 0, now + _FOLD_SECONDS


def _credentials(header: str) -> tuple[str, bytes] | None:
    """Return name and password from an ``Authorization`` header; None if it has none (RFC 7617)."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:
        return None


class Passwords:
    """Checks passwords against bcrypt hashes, one at a time.

    At cost 10 a check takes some 60 ms of CPU. The last passwords that were right are kept as keyed hashes,
    with a random key per process, so that only the first scrape pays for it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes()
        self._right: set[bytes] = set()
        self._room = threading.BoundedSemaphore(_MOST_CHECKS)
        self._one_at_a_time = threading.Lock()

    def remembers(self, users: Mapping[str, bytes], name: str, password: bytes) -> bool:
        """Return whether the password has been verified for the user before."""
        return name in users and self._ticket(name, users[name], password) in self._right

    def check(self, users: Mapping[str, bytes], name: str, password: bytes) -> bool | None:
        """Return whether the password is the user's, or None, at once, if too many checks wait already.

        For an unknown name the most expensive hash is checked in vain: the time discloses no names.
        """
        if not self._room.acquire(blocking=False):
            return None
        hashed = users.get(name) or max(users.values(), key=_cost)
        try:
            with self._one_at_a_time:
                right = _fits(password, hashed) and name in users
        finally:
            self._room.release()
        if right:
            if len(self._right) >= _REMEMBERED:
                self._right.clear()
            self._right.add(self._ticket(name, hashed, password))
        return right

    def _ticket(self, name: str, hashed: bytes, password: bytes) -> bytes:
        # Including the hash invalidates the entry when the password changes.
        return hmac.digest(self._key, repr((name, hashed, password)).encode(), hashlib.sha256)


def _cost(hashed: bytes) -> int:
    return int(hashed[4:6])


def _fits(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    return bcrypt.checkpw(password[:_BCRYPT_BYTES], _without_spare_bits(hashed))


def _without_spare_bits(hashed: bytes) -> bytes:
    """Return a hash without the last four bits of its salt, which 22 characters have beyond 128 bits.

    Go's bcrypt ignores these bits; Python's raises an error if they are set.
    """
    number = _ALPHABET.index(hashed[_SALT_END]) & 0b110000
    return hashed[:_SALT_END] + _ALPHABET[number : number + 1] + hashed[_SALT_END + 1 :]


class _Bucket:
    """A token bucket, refilled on each call; full at first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit: RateLimit | None = None

    def take(self, limit: RateLimit) -> bool:
        now = self._clock.monotonic()
        if limit != self._limit:
            self._limit, self._tokens, self._at = limit, float(limit.burst), now
        self._tokens = min(limit.burst, self._tokens + (now - self._at) / limit.interval)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
