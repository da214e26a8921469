"""What to do about a refusal of IMDS, by its HTTP status.

Sources: Azure's pages "Azure Instance Metadata Service" (statuses) and "Metadata Security Protocol", and the
source of its Guest Proxy Agent (403, 421 and those from 500 on).
"""

import os
import sys
from functools import cache
from http import HTTPStatus

EVENTS_PATH = "/metadata/scheduledevents"
INSTANCE_PATH = "/metadata/instance"

_SOMETHING_ELSE = "something else answers, such as a proxy or a sign-in page: correct imds.endpoint"
_AGENT = "the Guest Proxy Agent of Azure's Metadata Security Protocol"
_AGENT_LOG = "look at its log, ProxyAgent.Connection.log"
_REMEDIES = {
    401: f"IMDS asks for no password; {_SOMETHING_ELSE}; or {_AGENT} fails: {_AGENT_LOG}",
    404: "no IMDS at this address, or it does not have this document in this API version: correct "
    "imds.endpoint, leave imds.api_version at auto",
    410: "IMDS is being updated, and answers again within 70 s",
    421: f"{_AGENT} does not know which process asks: {_AGENT_LOG}",
    429: "programs on this VM together send more than the 5 requests a second that IMDS answers",
}
_FAILING = f"IMDS fails for now, or {_AGENT} does; if it lasts, {_AGENT_LOG}"


def remedy(status: int) -> str:
    """Return the likely cause of a status and what to do about it; "" if the answer itself has to tell."""
    if status == HTTPStatus.FORBIDDEN:
        return (
            "the Metadata Security Protocol refuses what its allowlist (InVMAccessControlProfile) does not "
            f"name: allow {EVENTS_PATH} and {INSTANCE_PATH} to {_identity()}"
        )
    if 300 <= status < 400:
        return f"IMDS does not redirect; {_SOMETHING_ELSE}"
    return _FAILING if status >= 500 else _REMEDIES.get(status, "")


@cache
def _identity() -> str:
    """Return the user and the executable of this process as the Guest Proxy Agent knows them."""
    return f"the executable {os.path.realpath(sys.executable)} of the user {_user()}"


def _user() -> str:
    if sys.platform == "win32":
        # Not the environment's USERNAME, which for a service is the name of the machine.
        try:
            return os.getlogin()
        except OSError:
            return "of this process"
    else:
        import pwd

        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return f"with uid {os.geteuid()}"
