"""Approvals: rules that let events proceed before their NotBefore, and whoever acts on them."""

from exporter.approval.approver import Approver

__all__ = ["Approver"]
