"""Tests of `exporter.commands`."""
