"""Tests of `exporter.metrics`."""
