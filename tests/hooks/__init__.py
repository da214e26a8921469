"""Tests of `exporter.hooks`."""
