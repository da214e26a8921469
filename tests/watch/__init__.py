"""Tests of `exporter.watch`."""
