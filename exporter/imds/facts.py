"""What IMDS knows about this VM, from Azure's page "Azure Instance Metadata Service"."""

from typing import Any

import msgspec

from exporter.errors import ImdsError, PollOutcome

# Names in documents have the same limit.
_LONGEST_NAME = 256


class InstanceFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What IMDS knows about this VM; "" where it says nothing. Events' ``Resources`` contain ``name``."""

    name: str = ""
    vm_id: str = ""
    resource_id: str = ""
    resource_group_name: str = ""
    subscription_id: str = ""
    location: str = ""
    zone: str = ""
    vm_scale_set_name: str = ""
    vm_size: str = ""
    platform_fault_domain: str = ""
    platform_update_domain: str = ""


class _InstanceAnswer(msgspec.Struct):
    compute: dict[str, Any] | None = None


def decode_instance(body: bytes) -> InstanceFacts:
    """Return the facts in an answer of IMDS.

    Raises:
        ImdsError: it has no usable facts.
    """
    try:
        answer = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"), type=_InstanceAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"not a valid document about this VM: {error}"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message) from error
    compute = answer.compute or {}
    fields = msgspec.structs.fields(InstanceFacts)
    facts = InstanceFacts(**{field.name: _text(compute.get(field.encode_name)) for field in fields})
    if len(facts.name) > _LONGEST_NAME:
        message = f"compute.name has {len(facts.name)} characters; {_LONGEST_NAME} are possible"
        raise ImdsError(PollOutcome.INVALID_DOCUMENT, message)
    return facts


def _text(value: object) -> str:
    """Return numbers as text: fault domains have been both. Anything else counts as nothing."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
