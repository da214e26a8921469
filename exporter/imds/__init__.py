"""Azure's Instance Metadata Service (IMDS): its client, rate limit and back-off, and finding its address."""
