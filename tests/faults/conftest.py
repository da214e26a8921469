"""Fixtures of the tests in this folder."""

from tests.serving.conftest import tls

__all__ = ["tls"]
