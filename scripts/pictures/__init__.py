"""Pictures for the documentation, drawn by `make pictures`."""
