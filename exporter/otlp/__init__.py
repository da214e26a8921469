"""Tracing: each event's life as spans, in one trace for all VMs, exported by OTLP over HTTP."""

from exporter.otlp.tracer import Tracer

__all__ = ["Tracer"]
