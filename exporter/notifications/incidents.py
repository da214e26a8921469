"""Services that know incidents: which attribute of a plugin has an incident's key, and what closes one.

All messages of one incident carry one key, and the one that ends it resolves it. Parameters of the target's
URL come first: a key or an action that is given there stays.
"""

from typing import Any

# The attribute that holds an incident's key, where the plugin takes none called ``dedup``.
_KEYS = {"Opsgenie": "alias", "Jira": "alias", "Splunk On-Call": "entity_id"}
# These close and annotate only what they opened: the plugin remembers the requests.
_WITH_MEMORY = ("Opsgenie", "Jira")
_OPEN = "new"
# As long as the plugins remember their requests.
_REMEMBERED_SECONDS = 60 * 24 * 3600


class Incidents:
    """The incidents of one service; ``url`` is the target's, "" where it is not known."""

    def __init__(self, plugin: Any, url: str) -> None:
        self._plugin = plugin
        name = str(plugin.service_name)
        arguments = plugin.template_args
        dedup = arguments.get("dedup", {})
        self._field: str | None = _KEYS.get(name) or (dedup.get("alias_of", "dedup") if dedup else None)
        self.exist = self._field is not None
        self.has_memory = name in _WITH_MEMORY
        if self._field is None:
            return
        if getattr(plugin, self._field) not in (None, "", _default_entity(plugin)):
            self._field = None
        given = (type(plugin).parse_url(url) or {}) if url else {}
        if "map" in arguments["action"]["values"] and not given.get("action"):
            plugin.action = "map"

    def begin(self, key: str) -> None:
        """Make the plugin's next message one about this incident."""
        if self._field is not None and key:
            setattr(self._plugin, self._field, key)

    def makes_request(self, key: str, notify_type: str) -> bool:
        """Return whether the plugin asks its service for anything."""
        return not self.has_memory or self._opens(notify_type) or bool(self._plugin.store.get(_opened(key)))

    def sent(self, key: str, notify_type: str) -> None:
        """Note that a message was delivered."""
        if self.has_memory and self._opens(notify_type):
            self._plugin.store.set(_opened(key), True, expires=_REMEMBERED_SECONDS)

    def _opens(self, notify_type: str) -> bool:
        action = self._plugin.action
        return bool((self._plugin.mapping[notify_type] if action == "map" else action) == _OPEN)


def _default_entity(plugin: Any) -> str:
    """Return the entity that the plugin of Splunk On-Call uses for all messages if none is given."""
    return f"{plugin.app_id}/{getattr(plugin, 'routing_key', '')}"


def _opened(key: str) -> str:
    return f"opened {key}"
