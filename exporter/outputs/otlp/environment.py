"""The OTEL_* variables that are read without OpenTelemetry's SDK.

Sources: OpenTelemetry's pages "Environment Variable Specification" (exporters, sampler, interval of metrics),
"OpenTelemetry Protocol Exporter" (endpoint, timeout, protocol) and "Metrics Exporter - OTLP" (temporality).
The SDK reads all others itself; it does not handle an endpoint with surrounding blanks or with a query, nor a
timeout of zero or of hours, and it sends without compression if it does not know the one that is set. Headers
and attributes that are malformed it drops, and logs with their text.
"""

import logging
import math
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from exporter.errors import ConfigurationError
from exporter.outputs.otlp.telemetry import Signal
from exporter.timefmt import parse_number

OTLP, CONSOLE = "otlp", "console"
_PROTOCOL = "http/protobuf"
_NONE = "none"
_USUAL_ENDPOINT = "http://localhost:4318"
_USUAL_SECONDS = 10.0
# An unreachable receiver must not block an attempt for long. SDKs of other languages count in milliseconds: a
# fleet-wide 10000 would be hours here.
_MOST_SECONDS = 60.0
_USUAL_INTERVAL = 60.0
_LEAST_INTERVAL = 1.0
# The page of metrics is always there, for whoever asks for `prometheus`.
_KNOWN = {Signal.METRICS: {OTLP, CONSOLE, _NONE, "prometheus"}}
_COMPRESSIONS = ("", "gzip", "deflate", "none")
_CUMULATIVE = "cumulative"
_PARENT_BASED = "parentbased_"  # events have no parent that could decide
_SHARES = {"": 1.0, "always_on": 1.0, "always_off": 0.0}
_RATIO = "traceidratio"


def selected(signal: Signal, enabled: Literal["auto"] | bool, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the exporters of a signal to use, each with the receiver's name; none unless one is configured.

    The name of a receiver contains no secret.

    Raises:
        ConfigurationError: a variable has an invalid value.
    """
    if enabled is False or _given(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return {}
    exporters = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip().lower() for name in _given(environ, exporters).split(",")]
    chosen = {name for name in names if name} or {OTLP}
    if chosen - _KNOWN.get(signal, {OTLP, CONSOLE, _NONE}):
        raise ConfigurationError(f"{exporters}: is not supported; use otlp, console or none")
    variable, address = _setting(signal, environ, "ENDPOINT")
    is_sent = OTLP in chosen and bool(variable or enabled is True)
    if _NONE in chosen or not (is_sent or CONSOLE in chosen):
        return {}
    if signal is Signal.TRACES and not sampled_share(environ):
        return {}
    addresses = {}
    if is_sent:
        _check_protocol(signal, environ)
        _check_headers(signal, environ)
        _check_compression(signal, environ)
        if signal is Signal.METRICS:
            _check_temporality(environ)
        addresses[OTLP] = _label(variable, address)
    _check_attributes(environ)
    if CONSOLE in chosen:
        addresses[CONSOLE] = CONSOLE
    return addresses


def sampled_share(environ: Mapping[str, str]) -> float:
    """Return the share of traces to send, from 0 to 1, or raise ConfigurationError for a bad variable."""
    sampler = _given(environ, "OTEL_TRACES_SAMPLER").lower().removeprefix(_PARENT_BASED)
    if sampler in _SHARES:
        return _SHARES[sampler]
    if sampler != _RATIO:
        raise ConfigurationError(
            "OTEL_TRACES_SAMPLER: is not supported; use always_on, always_off or traceidratio"
        )
    ratio = _given(environ, "OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        share = parse_number(ratio)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ConfigurationError("OTEL_TRACES_SAMPLER_ARG: is not a number from 0 to 1")
    return share


def interval(environ: Mapping[str, str]) -> float:
    """Return the seconds between two pushes of metrics, at least 1; the variable is in milliseconds.

    Raises:
        ConfigurationError: the variable is not a positive number.
    """
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    given = _given(environ, name)
    try:
        seconds = float(given) / 1000 if given else _USUAL_INTERVAL
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigurationError(f"{name}: is not a positive number of milliseconds")
    return max(seconds, _LEAST_INTERVAL)


def endpoint(signal: Signal, environ: Mapping[str, str]) -> str:
    """Return the receiver's URL: the signal's own variable as it is, or the general one with a path added."""
    own, general = (_given(environ, name) for name in _variables(signal, "ENDPOINT"))
    if own:
        return own
    base = urlsplit(general or _USUAL_ENDPOINT)
    return base._replace(path=f"{base.path.removesuffix('/')}/v1/{signal}").geturl()


def timeout(signal: Signal, environ: Mapping[str, str]) -> float:
    """Return the seconds that an attempt may take, at most 60; 0 (no limit) also means 60."""
    try:
        seconds = float(_setting(signal, environ, "TIMEOUT")[1])
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        return _USUAL_SECONDS
    return min(seconds or _MOST_SECONDS, _MOST_SECONDS)


def certificate(signal: Signal, environ: Mapping[str, str]) -> str:
    """Return the file with the certificates to trust; "" for the default ones."""
    return _setting(signal, environ, "CERTIFICATE")[1]


def _setting(signal: Signal, environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the variable that has a setting of a signal, and its value; both are "" if none is set."""
    return next(((v, value) for v in _variables(signal, name) if (value := _given(environ, v))), ("", ""))


def _variables(signal: Signal, name: str) -> tuple[str, str]:
    return (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", f"OTEL_EXPORTER_OTLP_{name}")


def _given(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _check_protocol(signal: Signal, environ: Mapping[str, str]) -> None:
    variable, protocol = _setting(signal, environ, "PROTOCOL")
    if variable and protocol.lower() != _PROTOCOL:
        raise ConfigurationError(
            f"{variable}: is not supported; set it to {_PROTOCOL}, "
            "and the endpoint to the receiver's port for that, by default 4318"
        )


def _check_headers(signal: Signal, environ: Mapping[str, str]) -> None:
    variable, headers = _setting(signal, environ, "HEADERS")
    if not headers:
        return
    from opentelemetry.util.re import parse_env_headers

    # It logs what it does not accept, which may be a secret.
    logging.getLogger(parse_env_headers.__module__).setLevel(logging.CRITICAL)
    for number, entry in enumerate(headers.split(","), 1):
        if entry.strip() and not parse_env_headers(entry, liberal=True):
            raise ConfigurationError(
                f"{variable}: entry {number} is not valid; write name=value without quotation marks, and "
                "percent-encode what is not a letter, a digit or -, such as a space as %20 and ; as %3B"
            )


def _check_attributes(environ: Mapping[str, str]) -> None:
    name = "OTEL_RESOURCE_ATTRIBUTES"
    for number, entry in enumerate(_given(environ, name).split(","), 1):
        if entry.strip() and "=" not in entry:
            raise ConfigurationError(
                f"{name}: entry {number} is not of the form name=value; write a comma in a value as %2C"
            )


def _check_compression(signal: Signal, environ: Mapping[str, str]) -> None:
    variable, compression = _setting(signal, environ, "COMPRESSION")
    if compression.lower() not in _COMPRESSIONS:
        raise ConfigurationError(f"{variable}: is not supported; use gzip, deflate or none")


def _check_temporality(environ: Mapping[str, str]) -> None:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    if _given(environ, name).lower() not in ("", _CUMULATIVE):
        raise ConfigurationError(f"{name}: is not supported; set it to {_CUMULATIVE}")


def _label(variable: str, address: str) -> str:
    """Return scheme, host and port of the endpoint, without its path, which may be a token."""
    if not variable:
        return _USUAL_ENDPOINT
    try:
        url = urlsplit(address)
        port = f":{url.port}" if url.port else ""
    except ValueError:
        url, port = urlsplit(""), ""
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(f"{variable}: is not a valid URL; write it like {_USUAL_ENDPOINT}")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}{port}"
