"""The first part of the name of every metric."""

PREFIX = "azure_scheduled_events"
