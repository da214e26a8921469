"""What leaves by OTLP over HTTP: each event's life as spans, all that happens as log records, all metrics.

All VMs' spans and records of an event are in one trace.
"""
