"""The commands for a terminal, one module each."""
