"""Tests that take long, need root or other programs; `make test` does not run them (see `make help-all`)."""
