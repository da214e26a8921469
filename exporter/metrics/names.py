"""What all names of metrics begin with."""

PREFIX = "azure_scheduled_events"
