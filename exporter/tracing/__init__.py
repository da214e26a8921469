"""Traces: each event's life as spans, one trace across all VMs that saw it, sent by OTLP over HTTP."""

from exporter.tracing.tracer import Tracer

__all__ = ["Tracer"]
