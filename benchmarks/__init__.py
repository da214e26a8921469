"""What the exporter costs, measured so that anybody can measure it again: `make bench`."""
