"""Notifications: every transition, once, to every target whose routes match.

In the exporter, `planning` composes messages by the routes, in the transaction of the transition that caused
them. A `worker` for each target asks `schedule` for the next message, and has `sender` make an attempt, which
waits for one of four places. At the start and at a reload, `checking` uses it to check addresses and
templates.

An attempt is made by a child of the sender process, by the `protocol`. `posix` forks it, `windows` starts a
program. What a `child` does: `rendering` turns messages into text:
`words` and `facts` in the `styles` of a format, or the user's `templates`, cut by `fitting`. `services` sends
the text by Apprise, and `failures` explains why that did not work; `webhook` sends events.
"""
