"""Tests of README.md and docs/: what they show works as it stands."""
