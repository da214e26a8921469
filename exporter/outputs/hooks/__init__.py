"""Commands of the user that run on transitions."""
