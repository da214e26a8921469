"""The prefix of all metric names."""

PREFIX = "azure_scheduled_events"
