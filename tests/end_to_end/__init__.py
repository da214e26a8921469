"""The running program, watched from outside as users watch it."""
