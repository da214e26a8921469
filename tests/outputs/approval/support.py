import json
from collections.abc import Callable
from typing import Any, NoReturn

from exporter.errors import ImdsError, PollOutcome
from tests.bench import Bench

RULE = {"name": "all", "match": {"event_types": ["Freeze"]}, "action": "approve"}
DRAIN = {"name": "drain", "command": ["drain"], "match": {"transitions": ["scheduled", "hook_failed"]}}
REFUSED = ImdsError(PollOutcome.HTTP_ERROR, "POST: status 400", 400)
SILENT = ImdsError(PollOutcome.TIMEOUT, "no answer")


def approving(rule: dict[str, Any] | None = None, **sections: Any) -> str:
    """Return a configuration with a rule for Freezes; ``approval`` among the sections has further keys."""
    approval = {"mode": "on", "rules": [RULE | (rule or {})]} | sections.pop("approval", {})
    return json.dumps({"approval": approval, **sections})


def failing(error: ImdsError) -> Callable[[str], NoReturn]:
    def fail(_: str) -> NoReturn:
        raise error

    return fail


def state(bench: Bench) -> tuple[str | None, str | None]:
    found = bench.api("current")[0]["approval"]
    return found["state"], found["reason"]


def states(bench: Bench) -> dict[str, str | None]:
    return {one["id"]: one["approval"]["state"] for one in bench.api("current")}


def transitions(bench: Bench) -> list[str]:
    return [one["transition"] for one in bench.api("current")[0]["transitions"]]


def tries(bench: Bench) -> list[float]:
    return [at - bench.posts[0][0] for at, _ in bench.posts]
