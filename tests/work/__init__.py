"""Tests of `exporter.work`."""
