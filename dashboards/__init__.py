"""Dashboards for Grafana: the JSON that users import, and the program that writes it."""
