"""What developing needs, beside libraries."""
