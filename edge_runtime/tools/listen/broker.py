"""Messages of a live broker, watched for some seconds through the client that `run` uses."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.errors import ConfigError, ConnectionFailed
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.packets import RETAIN, Publish, validate_topic_filter
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.io.recordings.capture import Captured
from edge_runtime.metrics import Metrics
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.types import Done

PATIENCE_S = 15.0
"""How long a broker may take to accept the connection, at most."""
_LEAST_PATIENCE_S = 3.0
"""As long as that, however short the listening."""


def broker_config(address: str, password_file: Path | None = None) -> BrokerConfig:
    """Make the settings of a broker from what people type: ``host``, ``host:1884`` or ``mqtts://USER@host``.

    Raises:
        ConfigError: no address of a broker, one with a password, or a password without a user.
    """
    scheme, _, rest = address.rpartition("://")
    user, at, host = rest.rpartition("@")
    if ":" in user:
        raise ConfigError("broker: no password here, where it is shown; write USER@host, and give --password-file FILE")
    if password_file and not at:
        raise ConfigError("broker: --password-file needs a user: write USER@host")
    try:
        return BrokerConfig(
            url=f"{scheme or 'mqtt'}://{host}",
            client_id=f"edge-runtime-listen-{os.getpid()}",
            username=user,
            password_file=password_file,
            clean_start=True,
            session_expiry_s=0,
        )
    except ValueError as error:
        raise ConfigError(f"broker {address}: {error}") from None


def watch(
    config: BrokerConfig,
    topics: Sequence[str],
    seconds: float,
    *,
    progress: Callable[[Capture], None] = lambda _: None,
) -> Capture:
    """Subscribe with QoS 0, and capture what comes. Ctrl-C and SIGTERM end it early, with what has come.

    Args:
        config: the broker.
        topics: topic filters.
        seconds: how long, from the connection on.
        progress: called each second.

    Raises:
        ConfigError: a topic filter is malformed.
        ConnectionFailed: the broker cannot be reached, or does not accept us, within `seconds`, but at
            least `_LEAST_PATIENCE_S` and at most `PATIENCE_S`.
    """
    for topic in topics:
        try:
            validate_topic_filter(topic)
        except MalformedPacket as error:
            raise ConfigError(f"topic filter '{topic}' cannot be subscribed to: {error}") from None
    capture, metrics, loop = Capture(), Metrics(), Loop()
    client = BrokerClient(config, "listen", metrics)
    late, begun = False, math.nan
    patience_s = min(PATIENCE_S, max(_LEAST_PATIENCE_S, seconds))

    def receive(publishes: list[Publish], _received: float, done: Done | None) -> None:
        now = loop.clock.wall()
        for topic, payload, _, _, flags, _ in publishes:
            capture.add(Captured(topic.decode(), bytes(payload), now, bool(flags & RETAIN)))
        if done is not None:
            done()

    def begin() -> None:
        nonlocal begun
        if client.connected:
            begun = loop.clock.monotonic()
            waiting.cancel()
            loop.call_later(seconds, loop.stop)
            loop.call_every(1.0, lambda: progress(capture))

    def give_up() -> None:
        nonlocal late
        if not client.connected:
            late = True
            loop.stop()

    client.subscribe([(topic, 0) for topic in topics], receive)
    try:
        client.open(loop)
        waiting = loop.call_every(0.02, begin)
        loop.call_later(patience_s, give_up)
        with stopped_by_signals(lambda: loop.call_soon_threadsafe(loop.stop)):
            loop.run()
        capture.listened_s = loop.clock.monotonic() - begun
    finally:
        client.close(0.0)
        loop.close()
    if late:
        raise ConnectionFailed(f"broker {config.url}: no connection within {patience_s:g} s; see the lines above")
    return capture
