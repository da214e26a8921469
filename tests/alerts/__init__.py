"""Tests of `alerts/` and of the configurations that `docs/prometheus.md` shows."""
