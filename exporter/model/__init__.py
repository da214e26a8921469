"""Documents, events and their life: pure, without I/O, clock or thread."""
