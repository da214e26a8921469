"""Notifications: every transition, once, to every target whose routes match.

`notifier` composes the messages, which are stored in the transaction of the transition that caused them.
For each target a `worker` takes those that `schedule` names next. `rendering` turns them into text: `words`
in the `styles` of a format, or the user's templates (`templating`, run by `engine`). `sending` passes the
text to the target's `services`, and `failures` explains why that did not work. `planning` and `addresses`
read all of it from the configuration.
"""
