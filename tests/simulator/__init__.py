"""Tests of `exporter.simulator`."""
