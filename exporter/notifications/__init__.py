"""Notifications: every transition, once, to every target whose routes match.

`planning` reads the plan, with the `addresses` of targets, from the configuration. By its routes the messages
are composed that are stored in the transaction of the transition that caused them. The `notifier` has for
each target a `worker`, which takes the messages that `schedule` names next. `rendering` turns them into text:
`words` in the `styles` of a format, or the user's templates (`templating`, run by `engine`). `sending` passes
the text to the target's `services`, and `failures` explains why that did not work.
"""
