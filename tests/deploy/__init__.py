"""What `deploy/` has fits the program."""
