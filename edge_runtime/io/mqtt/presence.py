"""Presence: how the user of a broker shows others on it whether it is there."""

from __future__ import annotations

from typing import Protocol

from edge_runtime.io.mqtt.outbound_queue import Message


class Presence(Protocol):
    """Births and deaths of one client, where these are the user's own and not `BrokerConfig.status_topic`.

    A connection with a presence begins without an earlier session, and what it had not sent when it ended is not sent
    by the next one: `lost` says so, and its user offers it again.
    """

    def will(self) -> Message:
        """Return the Will. Called on the thread that connects, once for each CONNECT, just before it is sent."""
        ...

    def accepted(self) -> None:
        """Hear that the broker accepted the connection; subscriptions are on their way, no message is."""
        ...

    def lost(self) -> None:
        """Hear that an accepted connection is gone; no `Done` of a message that is still waiting will be called."""
        ...

    def farewell(self) -> Message:
        """Return the last message of a connection that ends in good order."""
        ...
