"""Tests of what is bad around the program, or comes to it from outside."""
