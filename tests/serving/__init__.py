"""Tests of `exporter.serving`."""
