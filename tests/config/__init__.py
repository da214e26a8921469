"""Tests of `exporter.config`."""
