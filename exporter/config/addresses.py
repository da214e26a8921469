"""The addresses that outputs send to: secret URLs from the configuration, the environment or files."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from exporter.config import Config
from exporter.config.checks import values
from exporter.config.yamlfile import Keys, YamlFile
from exporter.errors import Mistakes

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]{0,19})://")
_CONTROL = "contains a line break or another control character; remove it"
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*(?=@)")  # what is between :// and @ in each of the URLs of a text
# For most services the first part of the URL is a token; for these it is a server's name.
_WITH_HOST = frozenset(
    f"{scheme}{secure}"
    for scheme in ("form", "gotify", "http", "json", "mailto", "matrix", "mmost", "ntfy", "rocket", "xml")
    for secure in ("", "s")
)


class NotifyUrls(tuple[str, ...]):
    """The URLs of ``--notify``, which are secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} URLs>"


class Address(msgspec.Struct, frozen=True):
    """The address of one target; without any, the rendered message is returned.

    URLs and headers are secrets; only the ``label`` may be shown.
    """

    target: str
    url: str = ""  # of Apprise, or of an Alertmanager
    apprise_config: tuple[str, str] | None = None  # path and tag of an Apprise file
    webhook: str = ""  # its URL
    headers: dict[str, str] = {}  # of a webhook or an Alertmanager
    keys: Keys = ()  # its place in the configuration file, empty for ``--notify``
    flag: str = "--notify"  # the flag or the variable then
    url_file: str = ""  # the file that the URL is from
    content_type: str = ""  # of a webhook's body by the user's template

    @property
    def label(self) -> str:
        """The part of the address that may be shown."""
        if self.apprise_config:
            return f"tag {self.apprise_config[1]}"
        return shown(self.webhook or self.url) if self.webhook or self.url else self.target

    @property
    def place(self) -> str:
        """The target as an error names it without a configuration file."""
        return f"{self.flag}: URL {self.target.removeprefix('notify-')}"

    @property
    def file(self) -> Path | None:
        """The file that it is from, if that is another one than the configuration file."""
        name = self.apprise_config[0] if self.apprise_config else self.url_file
        return Path(name) if name else None

    def __repr__(self) -> str:
        return f"<{self.target}: {self.label}>"


def shown(url: str) -> str:
    """Return the part of a URL that may be shown: ``scheme://host``, without the host if it may be a secret.

    It may be a token, or part of a password that has an unencoded ``@``, ``/`` or ``?``.
    """
    match = _SCHEME.match(url)
    if match is None:
        return "no URL"
    scheme = match[1].lower()
    host = _host(url, scheme) if scheme in _WITH_HOST else ""
    return f"{scheme}://{host or '...'}"


def _host(url: str, scheme: str) -> str:
    """Return the server's name, or "" in doubt."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for the rest of a password that contains a colon
    except ValueError:
        return ""
    query = "" if scheme.startswith("mailto") else parts.query
    if parts.netloc.count("@") > 1 or "@" in parts.path + query + parts.fragment:
        return ""
    host = parts.hostname or ""
    return host if host == "localhost" or "." in host or ":" in host else ""


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def variables(settings: Config) -> frozenset[str]:
    """Return the names of environment variables in ``${...}`` of any value, except in commands of hooks.

    Only URLs of targets are expanded, but variables elsewhere are intended as secrets, too.
    """
    values = msgspec.to_builtins(msgspec.structs.replace(settings, hooks=()), enc_hook=str)
    return frozenset(_VARIABLE.findall(msgspec.json.encode(values).decode()))


def contains_secret(config: Config) -> bool:
    """Return whether the configuration file itself contains a secret."""
    for place, text in values(config):
        if isinstance(text, str) and text and not _VARIABLE.search(text):
            around, key = place[-2:]
            is_key = isinstance(around, int)
            if around == "headers" and str(key).lower() == "authorization":
                return True
            if is_key and key == "url":
                return True
            if "@" in text and (around == "urls" or (is_key and key == "webhook")):
                return True
    return False


def expanded(text: str, keys: Keys, file: YamlFile, environ: Mapping[str, str]) -> str:
    """Return a URL, or the value of a header, with the values of its variables.

    Between ``://`` and ``@`` of a URL a value is percent-encoded, so that no character of a password ends its
    part of the URL. A variable that stands there alone may have user name and password, and keeps its first
    colon. A line break at the end of a value, which files have, is not part of it.
    """
    mistakes, texts = Mistakes(), dict[str, str]()
    for name in dict.fromkeys(_VARIABLE.findall(text)):
        with mistakes:
            # In a shell's syntax for a default, ${NAME:-URL}, the default is a secret, too.
            if not _NAME.fullmatch(name):
                raise file.error(keys, "${...} must contain only the name of a variable; use ${NAME}")
            texts[name] = environ.get(name, "").rstrip("\r\n")
            if not texts[name]:
                remedy = "set it, or use url_file" if keys[-1] == "url" else "set it"
                raise file.error(keys, f"the environment has no variable {name}; {remedy}")
            if not texts[name].isprintable():
                raise file.error(keys, f"the value of the variable {name} {_CONTROL}")
    mistakes.check()

    def encoded(user_info: re.Match[str]) -> str:
        if alone := _VARIABLE.fullmatch(user_info[0]):
            user, colon, password = texts[alone[1]].partition(":")
            return f"{quote(user, safe='')}{colon}{quote(password, safe='')}"
        return _VARIABLE.sub(lambda variable: quote(texts[variable[1]], safe=""), user_info[0])

    if "headers" not in keys:
        text = _USER_INFO.sub(encoded, text)
    return _VARIABLE.sub(lambda variable: texts[variable[1]], text).strip()
