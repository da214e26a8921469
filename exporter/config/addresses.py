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
_CONTROL = "contains a line break or another control character; remove it"
# Addresses to which nothing can be delivered, and what to do. docs/services.md has the sources.
_DEAD = (
    (
        re.compile(r"(https|workflows?)://[^/\s]*\.logic\.azure\.com[:/]", re.IGNORECASE),
        "is an address of Teams that no longer works; copy the new one from the workflow in Teams",
    ),
    (
        re.compile(r"https://[^/\s]*\.webhook\.office\.com/|msteams://", re.IGNORECASE),
        "is of a connector of Teams, and these are retired; use a workflow in Teams and copy its URL",
    ),
    (
        re.compile(r"(?<=[/:@=])([A-Z]+_)*(KEY|TOKEN|PASSWORD|SIGNATURE)(_[A-C])?(?=[/:@?&\s]|$)"),
        "has a placeholder such as INTEGRATION_KEY; write your own value in its place",
    ),
)
# What is between :// and @ in each of the URLs of a text.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*(?=@)")
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
    the rendered message is returned. ``url_file`` is the file that the URL is from,
    ``content_type`` that of a webhook's body by the user's template.
    """

    target: str
    url: str = ""
    apprise_config: tuple[str, str] | None = None
    webhook: str = ""
    headers: dict[str, str] = {}
    keys: Keys = ()
    flag: str = "--notify"
    url_file: str = ""
    content_type: str = ""

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

    In a target's ``url``, ``${NAME}`` is replaced by the value of the environment variable; see `_expanded`.
    Any other ``$`` is literal; a literal ``${`` is written ``%24{``. A missing or empty variable or file is
    added to ``mistakes``, without any secret. A target without an address is left out: `exporter.config`
    reports it.
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


def fault(url: str) -> str:
    """Return why nothing can be sent to an Apprise URL, without repeating it; "" if that is not known."""
    # Apprise would find it out, but only once its process has started.
    if "://" not in url:
        return NO_URL
    return next((remedy for pattern, remedy in _DEAD if pattern.search(url)), "")


def without_credentials(url: str) -> str:
    """Return a valid URL without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _fault_of_alertmanager(url: str, *, has_authorization: bool) -> str:
    """Return why an Alertmanager cannot have this URL, without repeating it, or ""."""
    parts = http_url(url)
    if parts is None:
        return "is not a valid URL; write it like https://alertmanager.example.com:9093"
    if set("?#") & set(url) or "@" in parts.path:
        return "has more than scheme, user, password, host, port and path; remove the rest"
    if _API_PATH in parts.path:
        return f"contains {_API_PATH}, which the exporter adds; remove it and what follows"
    if "@" in parts.netloc and has_authorization:
        return "has a user name, and alertmanager.headers has Authorization; keep one"
    return ""


def variables(settings: Config) -> frozenset[str]:
    """Return the names of environment variables in ``${...}`` of any value, except in commands of hooks.

    Only URLs of targets are expanded, but variables elsewhere are intended as secrets, too.
    """
    values = msgspec.to_builtins(msgspec.structs.replace(settings, hooks=()), enc_hook=str)
    return frozenset(_VARIABLE.findall(msgspec.json.encode(values).decode()))


def contains_secret(config: Config) -> bool:
    """Return whether the configuration file itself contains a secret."""
    targets, monitored = config.notifications.targets, config.alertmanager
    sent = (*(target.headers for target in targets), monitored.headers)
    may_be_secret = [
        *(target.url for target in targets),
        *(value for one in sent for name, value in one.items() if name.lower() == "authorization"),
        *(url for url in (*monitored.urls, *(target.webhook for target in targets)) if "@" in url),
    ]
    return any(text and not _VARIABLE.search(text) for text in may_be_secret)


def secret_files(config: Config) -> tuple[Path, ...]:
    """Return the files besides the configuration file that contain addresses."""
    settings, targets = config.notifications, config.notifications.targets
    found = [Path(target.url_file) for target in targets if target.url_file]
    if settings.apprise_config and any(target.tag for target in targets):
        found.append(Path(settings.apprise_config))
    return tuple(found)


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
        url = _url_in_file(target.url_file, keys, file)
        return Address(target.name, url, keys=keys, url_file=target.url_file)
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
        content_type = target.templates.content_type if target.templates else ""
        return Address(target.name, webhook=url, headers=headers, keys=keys, content_type=content_type)
    return None


def reread(address: Address) -> Address:
    """Return an address with the URL that its file has by now.

    Raises:
        ConfigurationError: the file cannot be read, or nothing can be sent to what it has.
    """
    file = YamlFile()
    url = _url_in_file(address.url_file, address.keys, file)
    if found := fault(url):
        raise file.error(address.keys, found)
    return msgspec.structs.replace(address, url=url)


def _url_in_file(path: str, keys: Keys, file: YamlFile) -> str:
    lines = _read(path, keys, file).split()
    if len(lines) != 1:
        what = "is empty" if not lines else "has more than one URL"
        raise file.error(keys, f"the file {what}; it must contain one Apprise URL")
    return lines.pop()


def _expanded(text: str, keys: Keys, file: YamlFile, environ: Mapping[str, str]) -> str:
    """Return a URL, or the value of a header, with the values of its variables.

    Between ``://`` and ``@`` of a URL a value is percent-encoded, so that no character of a password ends its
    part of the URL. A variable that stands there alone may have user name and password, and keeps its first
    colon. A line break at the end of a value, which files have, is not part of it.
    """
    mistakes, values = Mistakes(), dict[str, str]()
    for name in dict.fromkeys(_VARIABLE.findall(text)):
        with mistakes:
            # In a shell's syntax for a default, ${NAME:-URL}, the default is a secret, too.
            if not _NAME.fullmatch(name):
                raise file.error(keys, "${...} must contain only the name of a variable; use ${NAME}")
            values[name] = environ.get(name, "").rstrip("\r\n")
            if not values[name]:
                remedy = "set it, or use url_file" if keys[-1] == "url" else "set it"
                raise file.error(keys, f"the environment has no variable {name}; {remedy}")
            if not values[name].isprintable():
                raise file.error(keys, f"the value of the variable {name} {_CONTROL}")
    mistakes.check()

    def encoded(user_info: re.Match[str]) -> str:
        if alone := _VARIABLE.fullmatch(user_info[0]):
            user, colon, password = values[alone[1]].partition(":")
            return f"{quote(user, safe='')}{colon}{quote(password, safe='')}"
        return _VARIABLE.sub(lambda variable: quote(values[variable[1]], safe=""), user_info[0])

    if "headers" not in keys:
        text = _USER_INFO.sub(encoded, text)
    return _VARIABLE.sub(lambda variable: values[variable[1]], text).strip()


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
