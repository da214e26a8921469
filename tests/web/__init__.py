"""Tests of `exporter.web`."""
