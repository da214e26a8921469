"""Tests that `deploy/` matches the program."""
