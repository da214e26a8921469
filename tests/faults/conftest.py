"""Fixtures of the tests in this folder."""

from tests.serving.conftest import tls
from tests.web.conftest import pki

__all__ = ["pki", "tls"]
