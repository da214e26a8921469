"""The decision whether to approve an event, as a pure function of rules, event, state and time.

An approval lets the event proceed for every VM in its ``Resources`` (Azure's page "Scheduled Events for Linux
VMs", "Start an event"), so in doubt the event is held.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from exporter import config
from exporter.config import Mode, Rule
from exporter.model.events import ScheduledEvent, normal_name
from exporter.model.jobs import HookOutcome
from exporter.model.lifecycle import Life
from exporter.model.views import NO_APPROVAL, ApprovalView
from exporter.model.wording import count
from exporter.timefmt import rfc3339

_LONGEST_SECONDS = 1e9  # the limit of what datetimes can represent


class ApprovalState(StrEnum):
    """The state of an event's approval, in logs, page and API."""

    HOLD = "hold"
    WAITING = "waiting"
    LIMITED = "limited"
    DUE = "due"
    DRY_RUN = "dry_run"
    APPROVED = "approved"
    FAILED = "failed"


class Decision(msgspec.Struct, frozen=True):
    """The state of an event's approval (None for none), the rule ("" for none) and the reason."""

    state: ApprovalState | None = None
    rule: str = ""
    reason: str = ""

    @property
    def view(self) -> ApprovalView:
        if self.state is None:
            return NO_APPROVAL
        return ApprovalView(self.state.value, self.rule or None, self.reason)


class ApprovalInputs(msgspec.Struct, frozen=True):
    """The recorded facts about one life of an event, and about approvals in general."""

    approved_by: str = ""  # the rule by which it was approved
    asked_by: str = ""  # the rule by which an approval was sent without a known result
    hooks: Mapping[str, HookOutcome | None] = {}  # of each hook's newest run, None until it has ended
    has_unreported: bool = False  # a change is not reported yet, so that its hooks are not queued
    open_hooks: Sequence[str] = ()  # pending or running ones that documents brought about
    age: float = 0.0  # seconds since the life began
    within_hour: int = 0  # how many other events were approved in the last hour
    unknown_until: datetime | None = None  # before it, ``within_hour`` is not known


def decide(
    life: Life, settings: config.Approval, instance: str | None, now: datetime, inputs: ApprovalInputs
) -> Decision:
    """Decide about a current event while approvals are on; `ApprovalState.DUE` means to approve it now."""
    event = life.event
    if inputs.approved_by or not event.is_scheduled:
        return concluded(life, inputs)
    doubt = _doubt(life, instance)
    if doubt or instance is None:
        return Decision(ApprovalState.HOLD, reason=doubt)
    rule = first_match(settings, event, instance, now)
    if rule is None:
        return Decision(ApprovalState.HOLD, reason="no rule matches")
    if rule.action == "hold":
        return Decision(ApprovalState.HOLD, rule.name, "the rule holds it")
    return _by_rule(rule, settings, _rank(event, instance) or 0, now, inputs)


def concluded(life: Life, inputs: ApprovalInputs) -> Decision:
    """Return the decision about an event that was approved, or can no longer be approved."""
    if inputs.approved_by:
        return Decision(ApprovalState.APPROVED, inputs.approved_by, "this exporter approved it")
    if inputs.asked_by and life.ended is None and not life.event.is_scheduled:
        return Decision(ApprovalState.FAILED, inputs.asked_by, "sent, but whether Azure took it is not known")
    return Decision()


def first_match(
    settings: config.Approval, event: ScheduledEvent, instance: str, now: datetime
) -> Rule | None:
    target = event.target(instance)
    matching = (rule for rule in settings.rules if rule.match.holds(event, target=target, now=now))
    return next(matching, None)


def _doubt(life: Life, instance: str | None) -> str:
    event = life.event
    if instance is None:
        return "this VM does not know its own name"
    if life.unread:
        return "the newest document lists it, but it could not be read"
    if event.doubts:
        return f"part of it could not be read ({event.doubts[0]})"
    if not event.resources:
        return "Azure does not say which VMs it affects"
    is_affected = _rank(event, instance) is not None
    return "" if is_affected else "it does not affect this VM; those that it affects decide"


def _rank(event: ScheduledEvent, instance: str) -> int | None:
    """Return this VM's index in ``Resources``, from 0."""
    wanted = normal_name(instance)
    names = [normal_name(name) for name in event.resources]
    return names.index(wanted) if wanted in names else None


def _by_rule(
    rule: Rule, settings: config.Approval, rank: int, now: datetime, inputs: ApprovalInputs
) -> Decision:
    if inputs.unknown_until is not None:
        until = rfc3339(inputs.unknown_until)
        reason = f"the state was lost, and with it what was approved in the last hour; held until {until}"
        return Decision(ApprovalState.HOLD, rule.name, reason)
    turn = rank * float(settings.failover_after) if settings.leader == "first" else 0.0
    wait = min(float(rule.delay) + turn, _LONGEST_SECONDS)
    if inputs.age < wait:
        # To the second: the two clocks do not tick alike.
        due = (now + timedelta(seconds=wait - inputs.age + 0.5)).replace(microsecond=0)
        before = "1 VM comes" if rank == 1 else f"{rank} VMs come"
        whose = "" if settings.leader == "any" or not rank else f"; {before} before this one"
        return Decision(ApprovalState.WAITING, rule.name, f"not before {rfc3339(due)}{whose}")
    unready = _by_hooks(rule, inputs)
    if unready is not None:
        return unready
    if settings.mode is Mode.DRY_RUN:
        reason = "it would be approved now; approval.mode is dry_run"
        return Decision(ApprovalState.DRY_RUN, rule.name, reason)
    if inputs.within_hour >= settings.max_per_hour:
        approvals = count(inputs.within_hour, "approval")
        reason = f"{approvals} within 1h; approval.max_per_hour is {settings.max_per_hour}"
        return Decision(ApprovalState.LIMITED, rule.name, reason)
    return Decision(ApprovalState.DUE, rule.name, "the rule approves it")


def _by_hooks(rule: Rule, inputs: ApprovalInputs) -> Decision | None:
    """Return the decision if the event has to wait for hooks, else None."""
    if inputs.has_unreported:
        reason = "its last change is not reported yet, and hooks may run for it"
        return Decision(ApprovalState.WAITING, rule.name, reason)
    if inputs.open_hooks:
        reason = f"the hook {inputs.open_hooks[0]} has not ended yet"
        return Decision(ApprovalState.WAITING, rule.name, reason)
    for name in rule.require_hooks:
        outcome = inputs.hooks.get(name)
        if outcome is None:
            ran = "has not ended yet" if name in inputs.hooks else "did not run for it"
            return Decision(ApprovalState.WAITING, rule.name, f"the hook {name} {ran}")
        if outcome is not HookOutcome.SUCCEEDED:
            words = outcome.value.replace("_", " ")
            return Decision(ApprovalState.HOLD, rule.name, f"the hook {name} {words}")
    return None
