"""Telling people: every transition, once, to every target whose routes want it.

The messages are written down in the same transaction as the transition that caused them (`exporter.state`),
and worked off here by one thread per target, through Apprise.
"""
