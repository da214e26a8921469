"""Alerts about the events of this VM, posted to Alertmanager without Prometheus."""
