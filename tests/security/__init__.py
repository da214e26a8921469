"""What the program does for security, shown on the running program."""
