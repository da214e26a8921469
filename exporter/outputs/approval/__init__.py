"""Approvals: rules that let events start before their NotBefore, and the thread that applies them."""
