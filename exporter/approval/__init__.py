"""Approvals: rules that let events start before their NotBefore, and the thread that applies them."""

from exporter.approval.approver import Approver

__all__ = ["Approver"]
