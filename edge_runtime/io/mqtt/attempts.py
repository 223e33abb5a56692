"""Connection attempts: when a broker is tried again, with which version of MQTT, and the log of it. No sockets."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

from edge_runtime.base.system.retry import Retry
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.packets import V5, V311

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.connection import ConnackRefusal

logger = logging.getLogger(__name__)

STABLE_S: Final = 5.0
"""A connection that lived this long was a good one: the next failure begins with short waits again."""

SUSPICIOUS: Final = 3
"""Connections in a row that lived shorter; as many have a cause in what we send."""

VERSION_NAMES: Final = {V5: "5", V311: "3.1.1"}


class Attempts:
    """The attempts to connect to one broker.

    Args:
        config: the broker, and the versions that may be tried.
        name: its name in the configuration, for the log.
        retry: waits between attempts.
        rng: jitter.

    Attributes:
        version: `V5` or `V311`: of the connection, or of the next attempt.
        failures: attempts and short connections in a row that came to nothing.
        short: connections in a row that the broker accepted and that ended within `STABLE_S`.
    """

    def __init__(self, config: BrokerConfig, name: str, retry: Retry, rng: random.Random) -> None:
        self.version = V311 if config.protocol == "3.1.1" else V5
        self.failures = 0
        self.short = 0
        self._protocol = config.protocol
        self._address = config.address()
        self._name = name
        self._retry = retry
        self._rng = rng
        self._accepted_at = 0.0
        self._warned = ""
        self._refused: ConnackRefusal | None = None
        self._version_accepted = False
        self._switched = False  # both versions were tried since the last connection

    def begin(self) -> None:
        """Another attempt is made."""
        self._refused = None

    def refused(self, refused: ConnackRefusal) -> None:
        """Take note that the broker refused; the connection is about to end."""
        self._refused = refused

    def accepted(self, now: float) -> None:
        """Take note that the broker accepted, at this monotonic time."""
        self._version_accepted, self._switched, self._warned = True, False, ""
        self._accepted_at = now

    def failed(self, why: str, now: float, *, was_connected: bool, client_id: str = "", largest: int = 0) -> float:
        """Take note that an attempt failed, or a connection was lost.

        Args:
            why: the reason, for the log, which is told once per outage and reason.
            now: monotonic time, seconds.
            was_connected: the broker had accepted us.
            client_id: the one that the connection had.
            largest: bytes of the largest of our messages that was on its way.

        Returns:
            Seconds until the next attempt.
        """
        if was_connected:
            if now - self._accepted_at >= STABLE_S:
                self.failures = self.short = 0
            else:
                self.short += 1
                if self.short == SUSPICIOUS:
                    self._name_suspects(client_id, largest)
        elif self._try_other_version(why):
            return 0.0
        self.failures += 1
        slowly = self._retry.cap_s / 2 if self._refused is not None and self._refused.credentials else None
        if why != self._warned:
            self._warned = why
            logger.warning("broker %s at %s: %s; trying again until it works", self._name, self._address, why)
        return self._retry.delay(self.failures, slowly, self._rng)

    def _name_suspects(self, client_id: str, largest: int) -> None:
        """Log why a broker is likely to close connections just accepted; MQTT 3.1.1 has no way to say it."""
        message = f", or that our message of {largest} bytes is over the broker's limit" if largest else ""
        logger.warning(
            "broker %s: %d connections in a row were lost right after they were accepted: likely causes: another "
            "client has the client id %r (then give each its own client_id under [broker.%s])%s",
            *(self._name, self.short, client_id, self._name, message),
        )

    def _try_other_version(self, why: str) -> bool:
        """Go from MQTT 5 to 3.1.1 or back, where the broker may mean that; True: at once, it is the first time."""
        if self._protocol != "auto" or why.startswith("cannot connect"):
            return False
        if not (self._refused.unsupported_version if self._refused is not None else not self._version_accepted):
            return False  # some brokers close on a version that they do not know, instead of saying so
        old, self.version = self.version, V311 if self.version == V5 else V5
        first, self._switched = not self._switched, True
        if first:
            names = VERSION_NAMES[old], VERSION_NAMES[self.version]
            logger.info("broker %s: no answer to MQTT %s, trying %s", self._name, *names)
        return first
