"""Notifications: every transition, once, to every target whose routes match.

In the exporter, `planning` composes messages by the routes, in the transaction of the transition that caused
them. A `worker` for each target asks `schedule` for the next message and gives it to `sender`: the exporter's
side of the sender process, with which it speaks the `protocol`. At the start and at a reload, `checking` uses
it to check addresses and templates.

That process is `pool`, which forks each `child`. There, `rendering` turns messages into text:
`words` and `facts` in the `styles` of a format, or the user's `templates`, cut by `fitting`. `services` sends
the text by Apprise, and `failures` explains why that did not work; `webhook` sends events.
"""
