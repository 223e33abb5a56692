"""Maker of the cloud client."""

from __future__ import annotations

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.config import CloudConfig


def connect(config: CloudConfig, clock: Clock | None = None) -> CloudClient:
    """Make the client for a configuration; it opens no connection yet.

    Raises:
        ConfigError: a file is unreadable.
    """
    from edge_runtime.cloud.http import HttpClient  # noqa: PLC0415 - keeps ssl and zlib out of `import edge_runtime`

    return HttpClient(config, clock or SystemClock())
