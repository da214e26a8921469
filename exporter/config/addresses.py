"""The addresses of targets: secret URLs from the configuration, the environment or files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from exporter import files
from exporter.config import Alertmanager, Config, Notifications, Target, http_url
from exporter.config.yamlfile import Keys, YamlFile, dotted, parse
from exporter.errors import ConfigurationError, Mistakes

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NO_URL = "is not a valid URL; write it like mailto://user:password@example.com"
_SCHEME = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]{0,19})://")
# The parameter in which Apprise also accepts a password.
_PASSWORD = re.compile(r"[?&]pass(word)?=[^&]", re.IGNORECASE)
# What is left around a URL that was copied from text, and is part of none; an apostrophe may be within one.
_QUOTES = {
    **dict.fromkeys(
        "\"'\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb\u2039\u203a", "a quotation mark"
    ),
    "`": "a backtick",
    "<": "an angle bracket",
    ">": "an angle bracket",
}
_AFTER_URL = _QUOTES | {",": "a comma", ";": "a semicolon"}
_CONTROL = "contains a line break or another control character; remove it"
_WRITTEN = "@ as %40, : as %3A, / as %2F, ? as %3F, # as %23, & as %26 and ; as %3B"
_ENCODE = f"in user names, passwords and tokens write {_WRITTEN}"
_SECRET_HEADER = re.compile("auth|cookie|key|secret|token", re.IGNORECASE)
# For most services the first part of the URL is a token; for these it is a server's name.
_WITH_HOST = frozenset(
    f"{scheme}{secure}"
    for scheme in ("form", "gotify", "http", "json", "mailto", "matrix", "mmost", "ntfy", "rocket", "xml")
    for secure in ("", "s")
)


# The name of the only Alertmanager, of several with numbers, and of all of them in metrics.
ALERTMANAGER = "alertmanager"
_API_PATH = "/api/v2"
_NOTIFY = "SCHEDULED_EVENTS_NOTIFY"


class NotifyUrls(tuple[str, ...]):
    """The URLs of ``--notify``, which are secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} URLs>"


class Address(msgspec.Struct, frozen=True):
    """The address of one target: an Apprise URL, path and tag of an Apprise file, or the URL of a webhook.

    That of an Alertmanager has the ``url`` and the headers.

    The URL and the headers are secrets; only the ``label`` may be shown. ``keys`` is its place in the
    configuration file, empty for ``--notify``; ``flag`` is the flag or variable then. Without any address,
    the rendered message is returned.
    """

    target: str
    url: str = ""
    apprise_config: tuple[str, str] | None = None
    webhook: str = ""
    headers: dict[str, str] = {}
    keys: Keys = ()
    flag: str = "--notify"

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

    def __repr__(self) -> str:
        return f"<{self.target}: {self.label}>"


def shown(url: str) -> str:
    """Return the part of a URL that may be shown: ``scheme://host``, without the host if it may be a secret.

    It may be a token, or part of a password that has an unencoded ``@``, ``/`` or ``?``.
    """
    found = _SCHEME.match(url)
    if found is None:
        return "no URL"
    scheme = found[1].lower()
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
    return host if _is_server(host) else ""


def _is_server(host: str) -> bool:
    return host == "localhost" or "." in host or ":" in host


def resolve(
    settings: Notifications,
    extra: Sequence[str],
    file: YamlFile,
    environ: Mapping[str, str],
    mistakes: Mistakes,
) -> tuple[Address, ...]:
    """Return every target's address; ``extra`` are the URLs of ``--notify``, targets notify-1, notify-2, ...

    In a target's ``url``, ``${NAME}`` is replaced by the value of the environment variable, unchanged. Any
    other ``$`` is literal; a literal ``${`` is written ``%24{``. A missing or empty variable or file is added
    to ``mistakes``, without any secret. A target without an address is left out: `exporter.config` reports
    it.
    """
    found, apprise_config = [], ""
    with mistakes:
        if settings.apprise_config:
            text = _read(settings.apprise_config, ("notifications", "apprise_config"), file)
            if settings.apprise_config.endswith((".yml", ".yaml")):
                # Apprise does not say where the file is wrong.
                parse(text, Path(settings.apprise_config))
            apprise_config = settings.apprise_config
    for index, target in enumerate(settings.targets):
        place: Keys = ("notifications", "targets", index)
        with mistakes:
            if address := _address(target, place, apprise_config, file, environ):
                found.append(address)
    is_variable = list(extra) == environ.get(_NOTIFY, "").split()
    for name, url in zip(names_of_extra(extra), extra, strict=True):
        with mistakes:
            address = Address(name, url.strip(), flag=_NOTIFY if is_variable else "--notify")
            if not address.url:
                raise ConfigurationError(f"{address.place} is empty")
            if fault := fault_of(address.url):
                raise ConfigurationError(f"{address.place}: {fault}")
            found.append(address)
    return tuple(found)


def alertmanagers(
    settings: Alertmanager, file: YamlFile, environ: Mapping[str, str], mistakes: Mistakes
) -> tuple[Address, ...]:
    """Return the address of each Alertmanager, as `resolve` does those of targets."""
    here: Keys = ("alertmanager",)
    headers, found = {}, dict[str, Address]()
    for name, text in settings.headers.items():
        with mistakes:
            headers[name] = _expanded(text, (*here, "headers", name), file, environ)
    has_authorization = any(name.lower() == "authorization" for name in headers)
    for index, text in enumerate(settings.urls):
        keys = (*here, "urls", index)
        with mistakes:
            url = _expanded(text, keys, file, environ).rstrip("/")
            if fault := _fault_of_alertmanager(url, has_authorization=has_authorization):
                raise file.error(keys, fault)
            place = without_credentials(url)
            if place in found:
                raise file.error(keys, f"is the same as {dotted(found[place].keys)}; keep one")
            number = f"-{index + 1}" if len(settings.urls) > 1 else ""
            found[place] = Address(f"{ALERTMANAGER}{number}", url, headers=headers, keys=keys)
    return tuple(found.values())


def without_credentials(url: str) -> str:
    """Return a valid URL without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _fault_of_alertmanager(url: str, *, has_authorization: bool) -> str:
    """Return why an Alertmanager cannot have this URL, without repeating it, or ""."""
    parts = http_url(url)
    if parts is None or re.search(r"\s", url):
        return "is not a valid URL; write it like https://alertmanager.example.com:9093"
    if set("?#") & set(url) or "@" in parts.path:
        return "has more than scheme, user, password, host, port and path; remove the rest"
    if _API_PATH in parts.path:
        return f"contains {_API_PATH}, which the exporter adds; remove it and what follows"
    if "@" in parts.netloc and has_authorization:
        return "has a user name, and alertmanager.headers has Authorization; keep one"
    return ""


def fault_of(url: str) -> str:
    """Return why a URL, or one of several separated by spaces, would not be used as it was meant, or "".

    Apprise takes quotation marks as part of a token, and what follows a reserved character in a password as
    the server's name or as a path.
    """
    for place, letter, known in (("begins", url[:1], _QUOTES), ("ends", url[-1:], _AFTER_URL)):
        if letter in known:
            return f"{place} with {known[letter]}; remove it"
    for letter in url:
        if letter in _QUOTES and letter != "'":
            return f"contains {_QUOTES[letter]}; remove it, or write {quote(letter)} if it belongs there"
        if not letter.isprintable():
            return _CONTROL
    return next(filter(None, map(_fault_of_parts, separate(url))), "")


def separate(urls: str) -> list[str]:
    """Return the URLs in a text, which may have several, separated by spaces or commas."""
    return re.split(r"[\s,]+(?=[A-Za-z0-9+.-]+://)", urls)


def _fault_of_parts(url: str) -> str:
    scheme, _, rest = url.lower().partition("://")
    # https://www.rfc-editor.org/rfc/rfc3986#appendix-B
    authority, path, query, fragment = re.findall(r"([^/?#]*)([^?#]*)([^#]*)(.*)", rest)[0]
    given, at, _ = authority.rpartition("@")
    if "@" in given:
        return f"has more than one @ before the server's name; {_ENCODE}"
    if given.count(":") > 1:
        return f"has more than one : before the @; {_ENCODE}"
    if ";" in given + path and not scheme.startswith("http"):
        return f"has a ; before the parameters, and what follows it may be lost; {_ENCODE}"
    beyond = path + fragment + ("" if scheme.startswith("mailto") else query)
    if scheme in _WITH_HOST and not at and ":" in authority and "@" in beyond:
        return f"has an @ after the server's name, which may be part of a password; {_ENCODE}"
    return ""


def _fault_of_value(value: str, before: str, after: str) -> str:
    """Return why a variable's value cannot stand in a URL between two texts, without repeating it, or "".

    It must not end the part of the URL that it is in. A value that begins the URL may contain all parts.
    """
    if not before.strip():
        return ""
    if not value.isprintable():
        return _CONTROL
    if any(letter in value for letter in _QUOTES if letter != "'"):
        return "contains quotation marks or angle brackets; remove them, or write them in percent-encoding"
    beyond = before.partition("://")[2]
    if "?" in beyond:
        reserved = "&#"
    elif "/" in beyond:
        # Services have channels like #general.
        value, reserved = value.removeprefix("#"), "?#;"
    elif "@" in re.split("[/?#]", after)[0]:
        is_pair = beyond == "" and after.startswith("@") and value.count(":") == 1
        reserved = "/?#@;[]" + ("" if is_pair else ":")
    else:
        reserved = "?#;" if after.strip() else ""
    if set(reserved) & set(value):
        return f"contains a character that is reserved in this part of a URL; in it write {_WRITTEN}"
    return ""


def variables(settings: Config) -> frozenset[str]:
    """Return the names of environment variables in ``${...}`` of any value, except in commands of hooks.

    Only URLs of targets are expanded, but variables elsewhere are intended as secrets, too.
    """
    values = msgspec.to_builtins(msgspec.structs.replace(settings, hooks=()), enc_hook=str)
    return frozenset(_VARIABLE.findall(msgspec.json.encode(values).decode()))


def secret_files(config: Config, config_file: Path | None) -> tuple[Path, ...]:
    """Return the files that contain addresses; the configuration file only if it contains a secret."""
    settings, targets, monitored = config.notifications, config.notifications.targets, config.alertmanager
    literal = any(
        is_secret(target.url) or is_secret(target.webhook) or _has_token(target.headers) for target in targets
    )
    literal = literal or _has_token(monitored.headers) or any(_has_password(url) for url in monitored.urls)
    found = [config_file] if config_file and literal else []
    found += [Path(target.url_file) for target in targets if target.url_file]
    if settings.apprise_config and any(target.tag for target in targets):
        found.append(Path(settings.apprise_config))
    return tuple(found)


def is_secret(url: str) -> bool:
    """Return whether a URL, as written in the configuration, has to be treated as a secret.

    A password is a secret unless it is a ``${VARIABLE}``. So is everything after the server's name, where
    most services have their token, unless the URL is for mail or contains a variable (the token).
    """
    literal = _VARIABLE.sub("", url)
    found = _SCHEME.match(literal)
    scheme, rest = (found[1].lower(), literal[found.end() :]) if found else ("", literal)
    if scheme not in _WITH_HOST:
        return literal == url and _has_letters(rest)
    authority, *others = re.split(r"(?=[/?#])", rest)
    given, _, host = authority.rpartition("@")
    user, colon, password = given.partition(":")
    if _has_letters(password if colon else user):
        return True
    beyond = "".join(others) if _is_server(host) else host + "".join(others)
    if scheme.startswith("mailto"):
        return _PASSWORD.search(beyond) is not None
    return literal == url and _has_letters(beyond)


def _has_token(headers: Mapping[str, str]) -> bool:
    """Return whether a header that usually has a secret has no ``${VARIABLE}``."""
    return any(_SECRET_HEADER.search(name) and not _VARIABLE.search(value) for name, value in headers.items())


def _has_password(url: str) -> bool:
    """Return whether there is text before the host that is not a ``${VARIABLE}``; a path is no secret."""
    given, at, _ = url.partition("://")[2].rpartition("@")
    return bool(at) and _has_letters(_VARIABLE.sub("", given.partition(":")[2] or given))


def _has_letters(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def names_of_extra(extra: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"notify-{number}" for number in range(1, len(extra) + 1))


def _address(
    target: Target, place: Keys, apprise_config: str, file: YamlFile, environ: Mapping[str, str]
) -> Address | None:
    def expanded(text: str, *keys: str) -> str:
        return _expanded(text, (*place, *keys), file, environ)

    if target.tag and apprise_config:
        keys = (*place, "tag")
        _refuse_url(target.tag, keys, file, "a tag")
        return Address(target.name, apprise_config=(apprise_config, target.tag), keys=keys)
    if target.url_file:
        keys = (*place, "url_file")
        return Address(target.name, _url_in_file(target.url_file, keys, file), keys=keys)
    if target.url:
        return Address(target.name, expanded(target.url, "url"), keys=(*place, "url"))
    if target.webhook:
        mistakes, keys, headers = Mistakes(), (*place, "webhook"), {}
        for name, text in target.headers.items():
            with mistakes:
                headers[name] = expanded(text, "headers", name)
        with mistakes:
            url = expanded(target.webhook, "webhook")
            if http_url(url) is None:
                raise file.error(keys, "is not a valid URL; write it like https://example.com/events")
        mistakes.check()
        return Address(target.name, webhook=url, headers=headers, keys=keys)
    return None


def _url_in_file(path: str, keys: Keys, file: YamlFile) -> str:
    lines = _read(path, keys, file).split()
    if len(lines) != 1:
        what = "is empty" if not lines else "has more than one URL"
        raise file.error(keys, f"the file {what}; it must contain one Apprise URL")
    if fault := fault_of(lines[0]):
        raise file.error(keys, f"the URL in the file {fault}")
    return lines.pop()


def _expanded(text: str, keys: Keys, file: YamlFile, environ: Mapping[str, str]) -> str:
    """Return a URL, or the value of a header, with the values of its variables."""
    mistakes, is_url = Mistakes(), "headers" not in keys
    for found in _VARIABLE.finditer(text):
        name = found[1]
        with mistakes:
            # In a shell's syntax for a default, ${NAME:-URL}, the default is a secret, too.
            if not _NAME.fullmatch(name):
                raise file.error(keys, "${...} must contain only the name of a variable; use ${NAME}")
            if not (value := environ.get(name)):
                remedy = "set it, or use url_file" if keys[-1] == "url" else "set it"
                raise file.error(keys, f"the environment has no variable {name}; {remedy}")
            if is_url:
                fault = _fault_of_value(value, text[: found.start()], text[found.end() :])
            else:
                fault = "" if value.isprintable() else _CONTROL
            if fault:
                raise file.error(keys, f"the value of the variable {name} {fault}")
    mistakes.check()
    result = _VARIABLE.sub(lambda found: environ[found[1]], text).strip()
    if is_url and (fault := fault_of(result)):
        whole = _VARIABLE.fullmatch(text.strip())
        raise file.error(keys, f"the value of the variable {whole[1]} {fault}" if whole else fault)
    return result


def _refuse_url(text: str, keys: Keys, file: YamlFile, wanted: str) -> None:
    """Refuse a URL in the wrong place, without repeating it as other errors would."""
    if "://" in text:
        raise file.error(keys, f"must be {wanted}, but is a URL; set it as a target's url")


def _read(name: str, keys: Keys, file: YamlFile) -> str:
    _refuse_url(name, keys, file, "the path of a file")
    path = Path(name)
    try:
        return files.read_text(path)
    except UnicodeDecodeError as error:
        raise file.error(keys, "the file is not text") from error
    except OSError as error:
        raise file.error(keys, f"the file cannot be read: {error.strerror}") from error
