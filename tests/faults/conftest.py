"""Fixtures of the tests in this folder."""

from tests.web.conftest import pki

__all__ = ["pki"]
