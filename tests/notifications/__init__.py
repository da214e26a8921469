"""Tests of the notifications."""
