"""The soak: the program on the bench amid random documents and faults, compared with the model of a life."""
