"""Tests of the dashboards, and pictures of them."""
