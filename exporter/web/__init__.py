"""The exporter's web application: metrics, landing page, probes, JSON API, TLS and authentication.

It reads only the watch's snapshot and cannot approve events.
"""
