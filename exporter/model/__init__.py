"""Documents, events and their life cycle: pure functions and data, without I/O, clocks or threads."""
