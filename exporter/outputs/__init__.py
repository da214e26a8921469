"""What the exporter does with what it sees: one package for each way out."""
