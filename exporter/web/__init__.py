"""What the exporter serves over HTTP: metrics, a page for people, probes, a JSON API; TLS and passwords.

It reads the snapshot and nothing else of the watch, and nothing here approves an event.
"""
