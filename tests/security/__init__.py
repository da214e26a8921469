"""Security tests with the running program."""
