"""What OpenTelemetry's standard variables ask for, read without its SDK.

Sources: OpenTelemetry's pages "Environment Variable Specification" (which exporters, whether at all) and
"OpenTelemetry Protocol Exporter" (endpoint, timeout, protocol). All else in them is read by the SDK itself;
an endpoint with blanks around it or a query, and a timeout of zero or of hours, would be too much for it.
"""

import math
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from exporter.errors import ConfigurationError

_PROTOCOL = "http/protobuf"
_OTLP = "otlp"
_CONSOLE = "console"
_NONE = "none"
_PATH = "v1/traces"
_USUAL_ENDPOINT = "http://localhost:4318"
_USUAL_SECONDS = 10.0
# A receiver that has gone without a word must not keep a try waiting for long; other languages count in
# milliseconds, and a fleet's 10000 would be hours.
_MOST_SECONDS = 60.0


class Wanted(msgspec.Struct, frozen=True):
    """Which exporters of spans are asked for; ``label`` is the receiver as far as may be shown."""

    otlp: bool = False
    console: bool = False
    label: str = ""


def wanted(enabled: Literal["auto"] | bool, environ: Mapping[str, str]) -> Wanted:
    """Tell which exporters to use: none unless the configuration or a variable asks for one.

    Raises:
        ConfigurationError: a variable has a value that cannot be followed.
    """
    if enabled is False or _given(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return Wanted()
    names = [name.strip().lower() for name in _given(environ, "OTEL_TRACES_EXPORTER").split(",")]
    chosen = {name for name in names if name} or {_OTLP}
    unknown = sorted(chosen - {_OTLP, _CONSOLE, _NONE})
    if unknown:
        raise ConfigurationError(
            f"OTEL_TRACES_EXPORTER: {unknown[0]!r} is not known; give otlp, console or none"
        )
    variable = next((name for name in _variables("ENDPOINT") if _given(environ, name)), "")
    if _NONE in chosen or not (_OTLP in chosen and (variable or enabled is True)):
        return Wanted(console=_CONSOLE in chosen and _NONE not in chosen)
    _check_protocol(environ)
    return Wanted(otlp=True, console=_CONSOLE in chosen, label=_label(environ, variable))


def endpoint(environ: Mapping[str, str]) -> str:
    """Give the URL that spans go to: the variable for traces as it is, the general one with a path added."""
    own, general = (_given(environ, name) for name in _variables("ENDPOINT"))
    if own:
        return own
    base = urlsplit(general or _USUAL_ENDPOINT)
    return base._replace(path=f"{base.path.removesuffix('/')}/{_PATH}").geturl()


def timeout(environ: Mapping[str, str]) -> float:
    """Give the seconds that a try may take: over 0, and 60 at most, which 0 ("no limit") means too."""
    given = next((value for name in _variables("TIMEOUT") if (value := _given(environ, name))), "")
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        return _USUAL_SECONDS
    return min(seconds or _MOST_SECONDS, _MOST_SECONDS)


def _variables(name: str) -> tuple[str, str]:
    return (f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}")


def _given(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _check_protocol(environ: Mapping[str, str]) -> None:
    variable = next((name for name in _variables("PROTOCOL") if _given(environ, name)), "")
    if variable and _given(environ, variable).lower() != _PROTOCOL:
        raise ConfigurationError(
            f"{variable}: {_given(environ, variable)!r} is not spoken here; set it to {_PROTOCOL}, "
            "and the endpoint to the receiver's port for it, which is 4318 by default"
        )


def _label(environ: Mapping[str, str], variable: str) -> str:
    """Give scheme, host and port of the endpoint: its path may be a token."""
    if not variable:
        return _USUAL_ENDPOINT
    try:
        url = urlsplit(environ[variable].strip())
        port = f":{url.port}" if url.port else ""
    except ValueError:
        url, port = urlsplit(""), ""
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(f"{variable} is no URL; write it like http://localhost:4318")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}{port}"
